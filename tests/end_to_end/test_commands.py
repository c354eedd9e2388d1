"""Every command of ``sealmail``, each in a process of its own, in one long correspondence."""

from pathlib import Path

import click
import pytest
from tests.end_to_end.programs import PRICE, Done, Server, User

from sealmail_client.cli import main
from sealmail_client.fingerprint_words import fingerprint_words


def own_commands(group: click.Command, *names: str) -> set[tuple[str, ...]]:
    """Return the words of every command that does something by itself."""
    if not isinstance(group, click.Group):
        return {names}
    found = {names} if group.invoke_without_command else set()
    for name, one in group.commands.items():
        found |= own_commands(one, *names, name)
    return found


class Told:
    """Runs the installed program, and remembers which commands it was given."""

    def __init__(self) -> None:
        self.commands: set[tuple[str, ...]] = set()

    def __call__(self, user: User, *words: str, code: int = 0) -> Done:
        """Give a command that ends with this exit code."""
        self.commands.add(max(one for one in own_commands(main) if words[: len(one)] == one))
        done = user.runs(*words)
        assert done.exit_code == code, (words, done)
        return done


@pytest.fixture(scope="module")
def told() -> Told:
    """Return what runs commands."""
    return Told()


def account(server: Server) -> tuple[str, ...]:
    """Return the options that name an account on a server."""
    auth_key = ("--auth-key", server.auth_keys.pop(), "--price", PRICE)
    return (
        "--server",
        str(server.address),
        "--allow-private-targets",
        "--no-passphrase",
        *auth_key,
    )


def test_each_command_of_the_installed_program_does_its_work(
    place: Path, servers: tuple[Server, Server], told: Told
) -> None:
    """From the first ``init`` to ``identity revoke``; no command is left out."""
    first, second = servers
    pia = User("Pia", "pia@a.example", place / "pia-of-commands", first)
    quin = User("Quin", "quin@b.example", place / "quin-of-commands", second)
    for user in (pia, quin):
        named = ("--name", user.name, "--address", user.address, "--json")
        made = told(user, "init", *named, *account(user.server)).value
        assert (made["key_id"], made["published"]) == (user.key_id.hex, True)
        assert Path(made["revocation_certificate"]).exists()
    attached, target = place / "attached.txt", place / "saved"
    attached.write_text("attached")
    target.mkdir()

    # Keys.
    at = ("--server", str(second.address))
    assert told(pia, "key", "publish", "--json").value["address"] == pia.address
    (found,) = told(pia, "key", "find", quin.address, *at, "--json").value
    assert found["key_id"] == quin.key_id.hex
    (shown,) = told(pia, "key", "show", quin.address, "--json").value
    assert shown["key_id"] == quin.key_id.hex
    trusted = told(pia, "key", "trust", quin.address, quin.key_id.hex, "--json").value
    assert (trusted["key_id"], trusted["decision"]) == (quin.key_id.hex, "trusted")
    told(pia, "key", "verify", quin.address, "--words", " ".join(fingerprint_words(quin.key_id)))
    (row,) = told(pia, "key", "list", "quin", "--json").value
    assert row["decision"] == "verified"
    pins = told(pia, "server", "pins", "--json").value
    told(pia, "server", "accept", str(second.address), pins[0]["pin"])

    # A letter, an answer, and what becomes of them.
    letter = ("send", "--to", quin.address, "--subject", "Of apples", "--message", "and pears")
    told(pia, *letter, "--attach", str(attached))
    (mail,) = told(quin, "fetch", "--json").value["filed"]
    number = str(mail["number"])
    assert [one["subject"] for one in told(quin, "list", "--json").value] == ["Of apples"]
    read = told(quin, "read", number, "--json").value
    assert (read["text"], read["signature"]) == ("and pears", "valid")
    saved = told(quin, "save", number, str(target), "--json").value
    assert saved == [str(target / "attached.txt")]
    assert (target / "attached.txt").read_text() == "attached"
    assert len(told(quin, "search", "pears", "--json").value) == 1
    told(quin, "reply", number, "--message", "thanks")
    home = ("--server", str(first.address))
    passed_on = ("forward", number, "--to", pia.address, *home, "--with-signature")
    told(quin, *passed_on, "--message", "yours")
    filed = told(pia, "fetch", "--json").value["filed"]
    assert len(filed) == 2
    (mine,) = told(pia, "acks", "--json").value
    pia.outcome(mine["number"], "acknowledged")
    ledger = place / "by-hand.jsonl"
    told(pia, "outbox", "--export", str(ledger))
    assert quin.key_id.hex in ledger.read_text()

    # Tokens and blocking.
    assert told(quin, "bypass", "list", "--json").value
    revoked = told(quin, "bypass", "revoke", pia.address, "--json").value
    assert revoked == {"revoked": [pia.key_id.hex]}
    assert told(quin, "bypass", "reset", "--json").value == {"void": 0}
    blocked = told(quin, "block", pia.address, "--json").value
    assert blocked == {"blocked": [pia.key_id.hex]}
    assert told(quin, "unblock", pia.address, "--json").value == {"unblocked": [pia.key_id.hex]}
    second.stop()
    try:
        told(pia, *letter, code=4)
        (waiting,) = told(pia, "outbox", "--json").value[1:]
        number = str(waiting["number"])
        told(pia, "outbox", "pay", number, "--max-price", "5s", code=4)
        told(pia, "outbox", "cancel", number)
        unseen = "unseen@b.example"
        create = ("identity", "create", "--name", "P", "--address", unseen)
        unpublished = told(pia, *create, *account(second), "--json", code=3).value
        assert (unpublished["address"], unpublished["published"]) == (unseen, False)
        told(pia, "identity", "remove", unseen)
    finally:
        second.start()

    # Identities, and a home that is lost and comes back.
    assert told(pia, "identity", "set", "--mailboxes", "2", "--json").value["mailboxes"] == 2
    assert told(pia, "identity", "rotate", "--json").value["subkey"]
    other = "pia2@b.example"
    told(pia, "identity", "create", "--name", "P", "--address", other, *account(second))
    told(pia, "identity", "default", pia.address)
    assert len(told(pia, "identity", "list", "--json").value) == 2
    secret, archive = place / "pia.asc", place / "pia.backup"
    told(pia, "identity", "export", str(secret))
    written = told(pia, "backup", str(archive), "--json").value
    back = User("Pia", pia.address, place / "pia-back", first)
    restored = told(back, "restore", str(archive), "--json").value
    assert (restored["files"], restored["made"]) == (written["files"], written["made"])
    assert back.key_id == pia.key_id
    alone = User("Pia", "pia3@a.example", place / "pia-alone", first)
    own = ("--auth-key", (pia.home / "auth_key").read_text().strip())
    told(
        alone,
        *("identity", "import", str(secret), "--name", "Pia", "--address", alone.address),
        *("--server", str(first.address), "--allow-private-targets", "--no-passphrase"),
        *("--price", PRICE, *own),
    )
    assert alone.key_id == pia.key_id
    told(pia, "key", "forget", quin.address)

    # Work, health, and the end of a key.
    told(pia, "pow", "bench", "--json")
    stamp = told(pia, "pow", "mint", "bd,16,2", str(attached), "--json").value["stamp"]
    told(pia, "pow", "verify", stamp, str(attached), "--difficulty", "bd,16,2")
    told(pia, "doctor")
    passphrase = place / "pia-passphrase"
    passphrase.write_text("of pears\n")
    (quin.home / "gnupg" / "gpg-agent.conf").write_text("s2k-count 65536\n")
    changed = quin.runs(
        "identity", "passphrase", environment={"SEALMAIL_NEW_PASSPHRASE_FILE": str(passphrase)}
    )
    assert changed.exit_code == 0, changed
    told.commands.add(("identity", "passphrase"))
    revoked = told(pia, "identity", "revoke", "--yes", "--json").value
    assert revoked == {"key_id": pia.key_id.hex, "revoked": True, "published": True}
    told(pia, "send", "--to", quin.address, "--message", "x", code=25)
    assert own_commands(main) - told.commands == set()
