"""Identities by the installed programs: made, changed, moved, and ended, with real servers."""

import asyncio
import re
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.end_to_end.programs import PRICE, PROGRAMS, SECONDS, Server, User

from sealmail_client.cli import main
from sealmail_client.creation import Account, Wish, create_identity
from sealmail_client.desk import open_desk, utc_now
from sealmail_client.household import Household
from sealmail_client.own_key import OwnKey
from sealmail_client.presence import publish_everywhere, stay_findable
from sealmail_client.profile import Home
from sealmail_client.revoking import read_certificate
from sealmail_client.settings import AuthKey, Locked, Place
from sealmail_pow import Difficulty
from sealmail_protocol.addresses import Transport
from sealmail_protocol.dates import parse_date


@pytest.fixture(scope="module")
def dora(place: Path, servers: tuple[Server, Server]) -> User:
    """Return somebody whose identities change in these tests."""
    return User.settle(place, "Dora", "dora@a.example", servers[0])


def account_options(server: Server) -> tuple[str, ...]:
    """Return the options that name an account on ``server``, with a key of its own."""
    return (
        *("--server", str(server.address), "--auth-key", server.auth_keys.pop()),
        *("--allow-private-targets", "--no-passphrase", "--price", PRICE),
    )


def invitation(server: Server) -> str:
    """Return a code as the operator would hand it out."""
    command = [str(PROGRAMS / "sealmaild"), "account", "invite", "--data", str(server.directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = re.search(r"sealmail1:\S+", done.stdout)
    assert found is not None
    return found[0]


def test_an_invitation_typed_at_the_prompt_ends_with_a_working_account(
    place: Path, servers: tuple[Server, Server], bob: User
) -> None:
    """The name before the @ is enough, since the code holds the domain."""
    user = User("Ida", "ida@a.example", place / "ida-of-identities", servers[0])
    answers = "\n".join(("Ida", invitation(servers[0]), "ida", ""))
    words = user.command("init", "--allow-private-targets", "--no-passphrase", "--price", PRICE)
    done = CliRunner().invoke(main, words[1:], input=answers)
    assert done.exit_code == 0, done.output
    assert str(user.home / "revocation-certificate.txt") in done.output
    (row,) = user.does("identity", "list", "--json").value
    assert row["address"].startswith("ida@")
    bob.does("key", "find", row["address"], "--server", str(servers[0].address))
    assert user.tries("init").exit_code == 10


def test_a_forged_server_is_refused_at_the_first_connection_of_an_invited_user(
    place: Path, servers: tuple[Server, Server]
) -> None:
    """Its key is not the one in the code; with the right server, ``init`` goes on."""
    first = servers[0]
    code = invitation(first)
    first.stop()
    forger = Server.create(place / "forger")
    shutil.copy(forger.directory / "config.toml", place / "forger.toml")
    config = (place / "forger.toml").read_text()
    (forger.directory / "config.toml").write_text(
        config.replace(str(forger.address), str(first.address))
    )
    forger.start()
    user = User("Finn", "finn@a.example", place / "finn-of-identities", first)
    options = ("--name", "Finn", "--address", user.address, "--allow-private-targets")
    try:
        refused = user.tries("init", code, *options, "--no-passphrase", "--price", PRICE)
        assert refused.exit_code == 3
        assert "another key" in refused.complaint
    finally:
        forger.stop()
        first.start()
    made = user.key_id
    done = user.does("init")
    assert "going on with finn@a.example" in done.output
    assert user.key_id == made
    assert not (user.directory / "2").exists()


def test_a_mistyped_account_is_corrected_by_init_again(
    place: Path, servers: tuple[Server, Server]
) -> None:
    """The key that was made is kept, and published with the right auth key."""
    user = User("Gus", "gus@a.example", place / "gus-of-identities", servers[0])
    account = ("--server", str(servers[0].address), "--allow-private-targets")
    who = ("--name", "Gus", "--address", user.address, "--no-passphrase", "--price", PRICE)
    assert user.tries("init", *who, *account, "--auth-key", "0" * 40).exit_code == 24
    made = user.key_id
    right = ("--server", str(servers[0].address), "--auth-key", servers[0].auth_keys.pop())
    user.does("init", *right)
    assert user.key_id == made


def test_two_identities_of_a_home_share_nothing(
    dora: User, servers: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has its own key, pins and book; the user chooses by option, variable or default."""
    second = "shadow@b.example"
    who = ("--name", "Shadow", "--address", second)
    dora.does("identity", "create", *who, *account_options(servers[1]))
    rows = dora.does("identity", "list", "--json").value
    assert [(row["address"], row["default"]) for row in rows] == [
        (dora.address, True),
        (second, False),
    ]
    assert rows[0]["key_id"] != rows[1]["key_id"]
    pins = dora.does("--identity", second, "server", "pins", "--json").value
    assert {row["way"].split()[1] for row in pins} == {str(servers[1].address)}
    monkeypatch.setenv("SEALMAIL_IDENTITY", second)
    assert dora.does("key", "show", "--json").value["key_id"] == rows[1]["key_id"]
    monkeypatch.delenv("SEALMAIL_IDENTITY")
    dora.does("identity", "default", second)
    assert dora.does("key", "show", "--json").value["key_id"] == rows[1]["key_id"]
    dora.does("identity", "default", dora.address)
    assert dora.tries("--identity", "nobody@b.example", "list").exit_code == 10


def test_new_terms_are_published_at_once_and_former_ones_hold_for_a_while(
    dora: User, bob: User
) -> None:
    """Bob knows the cheap price and four mailboxes; his mail is taken although both changed."""
    look_up = ("key", "find", dora.address, "--server", str(dora.server.address), "--json")
    bob.does(*look_up)
    told = dora.does("identity", "set", "--price", "bd,22,2", "--mailboxes", "2").output
    assert "bd,22,2" in told
    assert bob.sends([dora], "At the old price").exit_code == 0
    assert "At the old price" in [
        mail["subject"] for mail in dora.does("fetch", "--json").value["filed"]
    ]
    (found,) = bob.does(*look_up).value
    assert found["price"] == "bd,22,2"
    assert dora.tries("identity", "set").exit_code == 2
    assert dora.tries("identity", "set", "--mailboxes", "17").exit_code == 2
    assert dora.tries("identity", "set", "--price", "cheap").exit_code == 2


def test_terms_that_could_not_be_published_are_so_by_the_next_fetch(dora: User, bob: User) -> None:
    """They hold here at once, and the failure is told."""
    dora.server.stop()
    try:
        assert dora.tries("identity", "set", "--price", "bd,21,2").exit_code == 3
    finally:
        dora.server.start()
    dora.does("fetch")
    look_up = ("key", "find", dora.address, "--server", str(dora.server.address), "--json")
    (found,) = bob.does(*look_up).value
    assert found["price"] == "bd,21,2"


def test_a_rotated_subkey_opens_new_mail_and_the_former_one_old_mail(
    dora: User, bob: User
) -> None:
    """Mail sealed before the rotation is fetched after it."""
    assert bob.sends([dora], "Before").exit_code == 0
    dora.does("identity", "rotate")
    bob.does("key", "find", dora.address, "--server", str(dora.server.address))
    assert bob.sends([dora], "After").exit_code == 0
    dora.does("fetch")
    assert {"Before", "After"} <= set(dora.subjects())


def test_key_and_claim_are_posted_to_the_pub_server_too(
    dora: User, servers: tuple[Server, Server], bob: User
) -> None:
    """It has an account and an auth key of its own; half an account is a wrong command."""
    pub = servers[1]
    assert dora.tries("identity", "set", "--pub-server", str(pub.address)).exit_code == 2
    options = ("--pub-server", str(pub.address), "--pub-auth-key", pub.auth_keys.pop())
    dora.does("identity", "set", *options)
    found = bob.does("key", "find", dora.address, "--server", str(pub.address), "--json").value
    assert [one["key_id"] for one in found] == [dora.key_id.hex]
    dora.does("identity", "set", "--no-pub-server")
    assert not (dora.home / "auth_key_pub").exists()


@pytest.fixture(scope="module")
def pub_server(place: Path) -> Iterator[Server]:
    """Run a third server."""
    server = Server.create(place / "pub-of-identities")
    server.start()
    yield server
    server.stop()


def sends(user: User, other: User) -> None:
    """Write a mail."""
    assert user.sends([other], "Sent").exit_code == 0


def fetches(user: User, _: User) -> None:
    """Fetch mail once."""
    user.does("fetch")


def watches(user: User, _: User) -> None:
    """Watch for mail until the last of the servers is told something."""
    told = "SELECT date FROM own_posting WHERE place = 'pub' ORDER BY type"
    command = user.command("fetch", "--watch", "1")
    with closing(sqlite3.connect(user.home / "mail.sqlite")) as database:
        before = database.execute(told).fetchall()
        watch = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + SECONDS
        try:
            while not set(database.execute(told)).isdisjoint(before):
                assert watch.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
        finally:
            watch.terminate()
            assert watch.wait(SECONDS) == 0


@pytest.mark.parametrize("works", [sends, fetches, watches])
def test_blocks_that_are_five_days_old_are_posted_again_by_send_fetch_and_watch(
    place: Path,
    servers: tuple[Server, Server],
    pub_server: Server,
    bob: User,
    works: Callable[[User, User], None],
) -> None:
    """To the home server, to the old one, where correspondents may still look, and to Pub."""
    first, second = servers
    wish = Wish(
        "Ted",
        f"ted-{works.__name__}@a.example",
        Account((first.address,), AuthKey(first.auth_keys.pop())),
        Difficulty.parse(PRICE),
        Locked.NOTHING,
        allow_private_targets=True,
    )
    ted = User("Ted", wish.address, place / f"ted-who-{works.__name__}", first)
    member = create_identity(Household(ted.directory), wish, None, "ed25519", utc_now)
    member.home.save_auth_key(AuthKey(second.auth_keys.pop()), Place.OLD)
    member.home.save_auth_key(AuthKey(pub_server.auth_keys.pop()), Place.PUB)
    old, pub = (Transport((server.address,)) for server in (second, pub_server))
    member.home.save(replace(member.settings, old_transport=old, pub_transport=pub))
    six_days_ago = utc_now() - timedelta(days=6)
    with open_desk(member.home, alone=True, clock=lambda: six_days_ago) as desk:
        assert asyncio.run(publish_everywhere(desk)) == ()
    works(ted, bob)
    for server in (*servers, pub_server):
        find = ("key", "find", ted.address, "--server", str(server.address), "--json")
        (found,) = bob.does(*find).value
        assert parse_date(found["date"]) > utc_now() - timedelta(days=1)
    posted = ted.home / "mail.sqlite"
    before = posted.read_bytes()
    with open_desk(member.home, alone=True) as desk:
        assert asyncio.run(stay_findable(desk)) == ()
    assert posted.read_bytes() == before


def test_a_passphrase_comes_from_files_and_is_changed_by_them(
    place: Path, servers: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong one ends with exit code 12 and changes nothing."""
    first = servers[0]
    files = {name: place / f"pass-{name}" for name in ("old", "new", "wrong")}
    for name, path in files.items():
        path.write_text(f"the {name} one\n")
    user = User.settle(place, "Una", "una@a.example", first)
    (user.home / "gnupg" / "gpg-agent.conf").write_text("s2k-count 65536\n")
    monkeypatch.setenv("SEALMAIL_NEW_PASSPHRASE_FILE", str(files["old"]))
    user.does("identity", "passphrase")
    monkeypatch.setenv("SEALMAIL_NEW_PASSPHRASE_FILE", str(files["new"]))
    monkeypatch.setenv("SEALMAIL_PASSPHRASE_FILE", str(files["wrong"]))
    assert user.tries("identity", "passphrase").exit_code == 12
    monkeypatch.setenv("SEALMAIL_PASSPHRASE_FILE", str(files["old"]))
    user.does("identity", "passphrase")
    assert user.tries("key", "publish").exit_code == 12
    monkeypatch.setenv("SEALMAIL_PASSPHRASE_FILE", str(files["new"]))
    user.does("key", "publish")


def test_an_exported_key_is_imported_elsewhere_and_a_backup_restored(
    dora: User, place: Path
) -> None:
    """Both are readable by their owner only, and neither overwrites anything."""
    secret, archive = place / "dora.asc", place / "dora.backup"
    exported = dora.does("identity", "export", str(secret))
    assert "whoever has this file" in exported.complaint
    assert dora.tries("identity", "export", str(secret)).exit_code == 28
    said = dora.does("backup", str(archive)).output
    assert "secret keys" in said
    assert dora.tries("backup", str(archive)).exit_code == 28
    assert {path.stat().st_mode & 0o777 for path in (secret, archive)} == {0o600}
    restored = User(dora.name, dora.address, place / "back-of-identities", dora.server)
    restored.does("restore", str(archive))
    assert restored.key_id == dora.key_id
    restored.does("fetch")
    assert restored.subjects() == dora.subjects()
    assert restored.tries("restore", str(archive)).exit_code == 10
    # The same key and account, with a further address.
    again = User("Dora", "dora@other.example", place / "again-of-identities", dora.server)
    options = ("--name", "Dora", "--address", again.address, "--price", PRICE)
    home = ("--server", str(dora.server.address), "--allow-private-targets", "--no-passphrase")
    auth_key = (dora.home / "auth_key").read_text().strip()
    again.does("identity", "import", str(secret), *options, *home, "--auth-key", auth_key)
    assert again.key_id == dora.key_id


def test_a_revoked_key_ends_for_everybody_and_for_good(
    place: Path, servers: tuple[Server, Server], bob: User
) -> None:
    """Its owner sends, claims and publishes nothing more; who refreshes the key seals no more."""
    first = servers[0]
    vera = User.settle(place, "Vera", "vera@a.example", first)
    assert bob.sends([vera], "While it held").exit_code == 0
    refused = CliRunner().invoke(main, vera.command("identity", "revoke")[1:], input="n\n")
    assert refused.exit_code == 1
    vera.does("identity", "revoke", "--yes")
    at_first = ("--server", str(first.address))
    found = bob.does("key", "find", vera.key_id.hex, *at_first, "--json").value
    assert [(one["key_id"], one["revoked"]) for one in found] == [(vera.key_id.hex, True)]
    # Its claim went with it: who types the address finds nobody.
    assert bob.tries("key", "find", vera.address, *at_first).exit_code == 20
    assert bob.sends([vera], "Too late").exit_code == 6
    letter = ("send", "--to", bob.address, "--message", "x")
    for words in (letter, ("key", "publish"), ("outbox", "--retry")):
        blocked = vera.tries(*words)
        assert blocked.exit_code == 25
        assert "revoked" in blocked.complaint
    assert vera.tries("identity", "set", "--price", "2s").exit_code == 25
    assert vera.tries("identity", "rotate").exit_code == 25
    vera.does("identity", "revoke", "--yes")
    assert [row["revoked"] for row in vera.does("identity", "list", "--json").value] == [True]
    # What was sealed before can still be read.
    vera.does("fetch")
    assert "While it held" in vera.subjects()


def test_a_revocation_that_reached_no_server_is_posted_by_the_next_fetch(
    place: Path, servers: tuple[Server, Server], bob: User
) -> None:
    """It counts here at once; the server hears of it when it is back."""
    first = servers[0]
    olga = User.settle(place, "Olga", "olga@a.example", first)
    first.stop()
    try:
        # As if the program had been killed after the first of three steps.
        with open_desk(Home(olga.home), alone=True) as desk:
            own = OwnKey(desk.keyring, desk.settings.key_id, None)
            revoked = own.when_revoked(read_certificate(desk, None))
            asyncio.run(desk.publisher.write_revocation(revoked))
        done = olga.does("identity", "revoke", "--yes")
        assert "tries again" in done.complaint
        assert olga.tries("send", "--to", "x@a.example", "--message", "x").exit_code == 25
    finally:
        first.start()
    olga.does("fetch")
    assert olga.tries("key", "publish").exit_code == 25
    (found,) = bob.does(
        "key", "find", olga.key_id.hex, "--server", str(first.address), "--json"
    ).value
    assert found["revoked"]


def test_without_the_secret_key_only_correspondents_can_be_told(
    place: Path, servers: tuple[Server, Server]
) -> None:
    """The certificate alone revokes the key here, and leaves a file to hand on."""
    lena = User.settle(place, "Lena", "lena@a.example", servers[0])
    certificate = place / "kept.txt"
    shutil.move(lena.home / "revocation-certificate.txt", certificate)
    shutil.rmtree(lena.home / "gnupg" / "private-keys-v1.d")
    assert lena.tries("identity", "revoke", "--yes").exit_code == 14
    done = lena.tries("identity", "revoke", "--yes", "--certificate", str(certificate))
    assert done.exit_code == 26
    assert str(lena.home / "revoked-key.asc") in done.complaint
    assert "BEGIN PGP PUBLIC KEY" in (lena.home / "revoked-key.asc").read_text()
    assert lena.tries("send", "--to", "x@a.example", "--message", "x").exit_code == 25


def test_a_private_server_that_was_not_allowed_has_a_way_out(
    place: Path, servers: tuple[Server, Server]
) -> None:
    """The first try fails with a hint; ``init`` goes on once it is allowed."""
    user = User("Pia", "pia@a.example", place / "pia-of-identities", servers[0])
    account = ("--server", str(servers[0].address), "--auth-key", servers[0].auth_keys.pop())
    named = ("--name", "Pia", "--address", "pia@a.example", "--no-passphrase", "--price", PRICE)
    refused = user.tries("init", *named, *account)
    assert refused.exit_code == 3
    assert "--allow-private-targets" in refused.complaint
    assert "`sealmail init` goes on" in refused.complaint
    assert "not published yet" in user.does("identity", "list").output
    user.does("init", "--allow-private-targets")
    assert "not published yet" not in user.does("identity", "list").output


def test_an_identity_that_nobody_has_seen_can_be_removed(
    place: Path, servers: tuple[Server, Server], dora: User
) -> None:
    """One that is published stays."""
    made = dora.tries(
        *("identity", "create", "--name", "Typo", "--address", "typo@a.example"),
        *("--server", "127.0.0.1:1", "--auth-key", "A" * 40, "--allow-private-targets"),
        *("--no-passphrase", "--price", PRICE),
    )
    assert made.exit_code == 3
    dora.does("identity", "remove", "typo@a.example")
    assert "typo@a.example" not in dora.does("identity", "list").output
    assert dora.tries("identity", "remove", dora.address).exit_code == 2


def test_a_key_that_is_here_already_is_not_imported_again(
    place: Path, servers: tuple[Server, Server], dora: User
) -> None:
    """A second identity with the same key would hide the first."""
    before = dora.does("identity", "list", "--json").value
    secret = place / "dora-again.asc"
    dora.does("identity", "export", str(secret))
    again = dora.tries(
        *("identity", "import", str(secret), "--name", "Dora", "--address", dora.address),
        *account_options(servers[0]),
    )
    assert again.exit_code == 10
    assert dora.does("identity", "list", "--json").value == before


def test_who_wrote_to_us_is_answered_and_never_taken_for_whom_he_says_he_is(
    alice: User, bob: User
) -> None:
    """His announcement came with the mail; that it names an address leads nobody to his server."""
    assert alice.sends([bob], "Please answer").exit_code == 0
    filed = bob.does("fetch", "--json").value["filed"]
    (number,) = (mail["number"] for mail in filed if mail["subject"] == "Please answer")
    fresh = bob.does("key", "list", "--json").value
    if any(row["address"] == alice.address for row in fresh):
        bob.does("key", "forget", alice.address)
    letter = ("--subject", "Here", "--message", "Hi")
    unproven = bob.tries("send", "--to", alice.address, *letter)
    assert unproven.exit_code == 20
    assert f"has the key {alice.key_id}: `sealmail reply`" in unproven.complaint
    assert bob.tries("key", "show", alice.address).exit_code == 20
    bob.does("reply", str(number), "--message", "Hi")
    bob.does("send", "--key", alice.key_id.hex, *letter)
