"""Mail that is not what it should be: it waits for the user or a better day, and not for ever."""

import asyncio
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.client.conftest import quick_home
from tests.end_to_end.forging import forged_letter, leave, seal, sign
from tests.end_to_end.programs import PRICE, Server, User, free_port

from sealmail_client import receiving
from sealmail_client.desk import Desk, open_desk, utc_now
from sealmail_client.inbox import ArrivingMessage
from sealmail_client.keyring import Keyring
from sealmail_client.letters import AckFile, Attachment, Forwarded, Letter
from sealmail_client.message_zip import zip_chunks
from sealmail_client.profile import Home
from sealmail_client.receiving import Arrivals, Receiver
from sealmail_protocol.addresses import ServerAddress, Transport
from sealmail_protocol.keys import KeyId

MIB = 1024 * 1024
# As long as any server keeps mail.
LIFETIME = timedelta(days=10)
# Of one block, which may be as large as what is taken unasked.
FEW = 8 * MIB
# A packet of ZIP that unpacks to nothing.
BAD_ZIP = b"\xa3\x01\xff\xff\xff"


@pytest.fixture(scope="module")
def bob(place: Path, servers: tuple[Server, Server]) -> User:
    """Return a reader whose clock may go wrong: no other test reads for this user."""
    return User.settle(place, "Pat", "pat@b.example", servers[1])


@pytest.fixture
def tools(mallory: User) -> Iterator[Keyring]:
    """Return Mallory's keyring."""
    with Keyring(mallory.home / "gnupg") as keyring:
        yield keyring


def visits(reader: User, ahead: timedelta = timedelta(0)) -> Arrivals:
    """Fetch with a clock that is ahead."""

    async def visit(desk: Desk) -> Arrivals:
        async with desk.servers.home() as peer:
            return await Receiver(desk).visit(peer)

    with open_desk(Home(reader.home), alone=True, clock=lambda: utc_now() + ahead) as desk:
        return asyncio.run(visit(desk))


def filed_of(reader: User, subject: str, *fetching: str) -> list[Any]:
    """Fetch, and return what is filed with this subject."""
    filed = reader.does("fetch", *fetching, "--json").value["filed"]
    return [mail for mail in filed if mail["subject"] == subject]


def packed(letter: Letter, path: Path) -> Path:
    """Write a letter's ZIP."""
    path.write_bytes(b"".join(zip_chunks(letter)))
    return path


def small_but_grows(keyring: Keyring, writer: User, reader: User, letter: Letter) -> bytes:
    """Seal a letter of zeros so that little is left of it."""
    keyring.import_public(Keyring(reader.home / "gnupg").public_key(reader.key_id))
    content, signature = sign(keyring, writer, letter)
    whole = len(signature).to_bytes(2, "big") + signature + content
    options = ("--batch", "-z", "9", "--throw-keyids", "--recipient", reader.key_id.hex)
    return keyring.run(*options, "--encrypt", given=whole).require_done("sealing")


@pytest.mark.parametrize("growing", ["by itself", "by its original", "by both"])
def test_a_strangers_mail_that_is_large_when_it_is_opened_waits_for_the_user(
    bob: User,
    mallory: User,
    tools: Keyring,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    growing: str,
) -> None:
    """Whatever its seal has: also what was forwarded in it, and forwarded in that, counts."""
    monkeypatch.setattr(receiving, "MAX_UNASKED", FEW)
    subject = f"It grows {growing}"
    letter = forged_letter(mallory, bob, subject)
    zeros = tmp_path / "zeros"
    zeros.write_bytes(bytes({"by itself": FEW, "by its original": FEW // 2}.get(growing, 3 * MIB)))
    inner = replace(letter, attachments=(Attachment("zeros", zeros),))
    if growing != "by itself":
        for depth in range(2 if growing == "by both" else 1):
            original = packed(inner, tmp_path / f"{depth}.zip")
            proof = tools.sign_detached(original, mallory.key_id, None)
            head = replace(letter.header, forwarded_id="e" * 40)
            inner = replace(letter, header=head, forwarded=Forwarded("e" * 40, original, proof))
    sealed = small_but_grows(tools, mallory, bob, inner)
    assert len(sealed) < MIB
    leave(bob, sealed)
    before = len(bob.does("list", "--folder", "forwarded", "--json").value)
    arrived = bob.does("fetch", "--json").value
    assert subject not in [mail["subject"] for mail in arrived["filed"]]
    (waiting,) = (one for one in arrived["waiting"] if one["reason"].startswith("opened it has"))
    assert waiting["state"] == "large"
    assert not (bob.home / "incoming" / str(waiting["number"])).exists()
    assert len(bob.does("list", "--folder", "forwarded", "--json").value) == before
    (mail,) = filed_of(bob, subject, str(waiting["number"]))
    assert mail["signature"] == "valid"


ILL = """#!/bin/sh
case " $* " in *" {word}"*)
    printf '[GNUPG:] ENC_TO 0 18 0\\n[GNUPG:] DECRYPTION_INFO 2 9 0\\n' >&2
    kill -KILL $$ ;;
esac
exec {gpg} "$@"
"""


@contextmanager
def ailing_gpg(place: Path, word: str = "--decrypt ") -> Iterator[None]:
    """Let gpg die of a signal while it opens a seal, or where else this word is in its command."""
    script = place / "gpg"
    script.write_text(ILL.format(word=word, gpg=shutil.which("gpg")))
    script.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(place), prepend=":")
        yield


def test_mail_is_kept_while_gpg_dies_of_it_and_given_up_at_last(
    bob: User, mallory: User, tools: Keyring, tmp_path: Path
) -> None:
    """It is filed when gpg is well, or refused when no server would keep it any longer."""

    def fails(subject: str) -> Any:
        letter = forged_letter(mallory, bob, subject)
        leave(bob, seal(tools, bob, *sign(tools, mallory, letter), tmp_path))
        with ailing_gpg(tmp_path):
            waiting = bob.does("fetch", "--json").value["waiting"]
        (one,) = (row for row in waiting if "ended by signal 9" in row["reason"])
        assert one["state"] == "fetched"
        assert any((bob.home / "incoming" / str(one["number"])).iterdir())
        return one["number"]

    fails("For better days")
    (mail,) = filed_of(bob, "For better days")
    assert mail["signature"] == "valid"
    number = fails("Never")
    with ailing_gpg(tmp_path):
        refused = visits(bob, LIFETIME).refused
    assert number in [message.number for message in refused]
    assert not (bob.home / "incoming" / str(number)).exists()
    assert filed_of(bob, "Never") == []


def test_what_does_not_open_is_tried_more_and_more_rarely(
    bob: User, mallory: User, tools: Keyring, tmp_path: Path
) -> None:
    """Whatever the reason, it costs a prompt or much time; the user may ask for it by number."""

    def arrives(subject: str) -> None:
        letter = forged_letter(mallory, bob, subject)
        leave(bob, seal(tools, bob, *sign(tools, mallory, letter), tmp_path))

    def reason() -> str:
        waiting = visits(bob).waiting
        return "".join(one.reason for one in waiting if one.tries)

    arrives("Of yesterday")
    with ailing_gpg(tmp_path):
        for _ in range(2):
            assert "ended by signal 9" in reason()
    arrives("Of today")
    assert "ended by signal 9" in reason()
    assert filed_of(bob, "Of yesterday") == []
    assert len(visits(bob, timedelta(minutes=2)).filed) == 1
    arrives("By number")
    with ailing_gpg(tmp_path):
        for _ in range(2):
            visits(bob)
        told = bob.does("fetch").output
    (number,) = re.findall(r"`sealmail fetch (\d+)` tries at once", told)
    (mail,) = filed_of(bob, "By number", number)
    assert mail["signature"] == "valid"


def test_what_gpg_gives_up_twice_while_it_is_well_is_refused(bob: User, tmp_path: Path) -> None:
    """Of bad compressed data it says no more than when it is ill itself."""
    leave(bob, BAD_ZIP)

    def numbers(messages: Iterable[ArrivingMessage]) -> set[int]:
        return {one.number for one in messages if "zlib" in one.reason}

    waiting = numbers(visits(bob).waiting)
    assert len(waiting) == 1
    with ailing_gpg(tmp_path):
        assert visits(bob, timedelta(minutes=2)).refused == ()
    assert numbers(visits(bob, timedelta(minutes=4)).refused) == waiting


def test_a_mail_with_a_secret_that_gpg_gives_up_is_filed_all_the_same(
    bob: User, mallory: User, tools: Keyring, tmp_path: Path
) -> None:
    """It is not acknowledged, and the user is told."""
    letter = forged_letter(mallory, bob, "Damaged within")
    within = AckFile(bob.key_id, BAD_ZIP, sealed=True)
    content, proof = sign(tools, mallory, replace(letter, ack_files=(within,)))
    leave(bob, seal(tools, bob, content, proof, tmp_path))
    assert any("zlib" in one.reason for one in visits(bob).waiting)
    arrivals = visits(bob)
    assert any(doubt.startswith("no acknowledgment for mail") for doubt in arrivals.doubts)
    (mail,) = (m for m in bob.does("list", "--json").value if m["subject"] == "Damaged within")
    assert mail["signature"] == "valid"


def test_a_mail_that_is_open_is_not_given_up_for_its_acknowledgment(
    bob: User, mallory: User, tools: Keyring, tmp_path: Path
) -> None:
    """What is needed for that is sealed on its own; it is waited for, and not for ever."""
    tools.import_public(Keyring(bob.home / "gnupg").public_key(bob.key_id))
    letter = forged_letter(mallory, bob, "Sealed within")
    within = AckFile(bob.key_id, tools.encrypt_bytes(b"ack=", [bob.key_id]), sealed=True)
    content, proof = sign(tools, mallory, replace(letter, ack_files=(within,)))
    leave(bob, seal(tools, bob, content, proof, tmp_path))
    # Only a seal that is in memory, and so small, is opened under so low a bound.
    with ailing_gpg(tmp_path, "--max-output=51200 "):
        waiting = bob.does("fetch", "--json").value["waiting"]
        assert any("ended by signal 9" in one["reason"] for one in waiting)
        arrivals = visits(bob, LIFETIME)
    assert any(doubt.startswith("no acknowledgment for mail") for doubt in arrivals.doubts)
    (mail,) = (m for m in bob.does("list", "--json").value if m["subject"] == "Sealed within")
    assert mail["signature"] == "valid"


def gpg(keyring: Keyring, *arguments: str, given: bytes = b"") -> bytes:
    """Let gpg do to a key what its owner does elsewhere."""
    run = keyring.run("--batch", "--passphrase", "", *arguments, given=given)
    return run.require_done(arguments[0])


def imported(reader: User, armored: str) -> None:
    """Let somebody know a key."""
    with Keyring(reader.home / "gnupg") as keyring:
        keyring.import_public(armored)


def left(keyring: Keyring, signer: str, reader: User, letter: Letter, place: Path) -> None:
    """Sign a letter with a key or subkey, and leave it with ``reader``."""
    content = b"".join(zip_chunks(letter))
    proof = gpg(keyring, "--local-user", signer, "--output", "-", "--detach-sign", given=content)
    leave(reader, seal(keyring, reader, content, proof, place))


def test_a_new_subkey_is_not_a_forgery_as_long_as_a_server_cannot_be_asked_for_it(
    bob: User, place: Path, tmp_path: Path
) -> None:
    """Its mail waits; when no server would keep it any longer it is filed as not its sender's."""
    away = Transport((ServerAddress("127.0.0.1", free_port()),))
    with Keyring(quick_home(place / "nina")) as keyring:
        nina = keyring.create("Nina", "nina@n.test", None)
        imported(bob, keyring.public_key(nina))
        gpg(keyring, "--quick-add-key", nina.hex, "ed25519", "sign")
        listed = gpg(keyring, "--with-colons", "--list-keys", nina.hex).decode().splitlines()
        subkey = [line.split(":")[9] for line in listed if line.startswith("fpr")][-1]
        for subject in ("By a new subkey", "By a subkey nobody knows"):
            letter = forged_letter(bob, bob, subject)
            head = replace(
                letter.header,
                sender_user_id="Nina <nina@n.test>",
                sender=nina,
                sender_transport=away,
            )
            left(keyring, f"{subkey}!", bob, replace(letter, header=head), tmp_path)
            waiting = bob.does("fetch", "--json").value["waiting"]
            assert any("it is not signed by its sender as far" in one["reason"] for one in waiting)
            if subject == "By a new subkey":
                imported(bob, keyring.public_key(nina))
                (mail,) = filed_of(bob, subject)
                assert (mail["signature"], mail["signer"]) == ("valid", nina.hex)
                with Keyring(bob.home / "gnupg") as others:
                    gpg(others, "--yes", "--delete-keys", nina.hex)
                imported(bob, stripped(keyring, nina, subkey))
    visits(bob, LIFETIME)
    (mail,) = (m for m in bob.does("list", "--json").value if m["subject"] == subject)
    assert (mail["signature"], mail["remark"]) == ("invalid", "it is not signed by its sender")
    assert (mail["signer"], mail["signed_at"]) == (None, None)


def stripped(keyring: Keyring, key_id: KeyId, subkey: str) -> str:
    """Return a key without one of its subkeys."""
    dropping = ("--export-filter", f"drop-subkey=fpr={subkey}", "--armor", "--export", key_id.hex)
    return gpg(keyring, *dropping).decode()


def test_a_key_whose_owner_extended_it_is_sought_again_when_it_has_expired(
    bob: User, place: Path, tmp_path: Path
) -> None:
    """Also if the mail does not bring it."""
    with Keyring(quick_home(place / "expiring")) as keyring:
        old = ("--faked-system-time", f"{utc_now() - timedelta(days=9):%Y%m%dT%H%M%S}!")
        gpg(keyring, *old, "--quick-generate-key", "Xenia <xenia@x.test>", "ed25519", "sign", "5d")
        (xenia,) = keyring.own_keys()
        gpg(keyring, *old, "--quick-add-key", xenia.hex, "cv25519", "encr")
        imported(bob, gpg(keyring, "--armor", "--export", xenia.hex).decode())
        gpg(keyring, "--quick-set-expire", xenia.hex, "0")
        secret = tmp_path / "xenia.asc"
        secret.write_bytes(gpg(keyring, "--armor", "--export-secret-keys", xenia.hex))
    user = User("Xenia", "xenia@x.test", place / "xenia", bob.server)
    user.does(
        *("identity", "import", str(secret), "--name", "Xenia", "--address", user.address),
        *("--price", PRICE, "--server", str(bob.server.address), "--allow-private-targets"),
        *("--dns", "off", "--no-passphrase", "--auth-key", bob.server.auth_keys.pop()),
    )
    assert user.key_id == xenia
    letter = forged_letter(user, bob, "Still here")
    with Keyring(user.home / "gnupg") as keyring:
        content, proof = sign(keyring, user, letter)
        leave(bob, seal(keyring, bob, content, proof, tmp_path))
    (mail,) = filed_of(bob, "Still here")
    assert (mail["signature"], mail["signer"]) == ("valid", xenia.hex)
    assert mail["signed_at"] <= mail["checked"]
