"""A gpg that dies, stands still or talks without end: what was meant for it is not to blame."""

import io
import shutil
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import mkdtemp

import pytest
from tests.client.conftest import Correspondent, quick_home

from sealmail_client.errors import BadMessage, GpgFailed, NotForUs, NotOpened
from sealmail_client.gpg_status import Transcript
from sealmail_client.keyring import Keyring
from sealmail_client.seal_head import MAX_READERS, CountedReaders
from sealmail_protocol.keys import KeyId

GPG = shutil.which("gpg")
# As gpg begins before its end comes.
OPENING = r"printf '[GNUPG:] ENC_TO 0 18 0\n[GNUPG:] DECRYPTION_INFO 2 9 0\n' >&2"
DIES = f"{OPENING}; echo half; kill -KILL $$"
OUT_OF_MEMORY = f"{OPENING}; exit 2"
STANDS = "exec sleep 60"

Ailing = Callable[[str, str], AbstractContextManager[Keyring]]


@pytest.fixture
def ailing(bob: Correspondent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ailing:
    """Return what opens Bob's keyring with a gpg that is given a word, and falls ill."""

    @contextmanager
    def opened(word: str, illness: str) -> Iterator[Keyring]:
        script = tmp_path / "gpg"
        script.write_text(f'#!/bin/sh\ncase " $* " in *" {word} "*) {illness} ;; esac\n')
        with script.open("a") as file:
            file.write(f'exec {GPG} "$@"\n')
        script.chmod(0o700)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        yield Keyring(bob.keyring.home, patience=0.2)

    return opened


@pytest.mark.parametrize("illness", [DIES, "kill -KILL $$", OUT_OF_MEMORY, "exit 2", STANDS])
def test_a_gpg_that_fails_says_nothing_against_a_seal(
    bob: Correspondent, ailing: Ailing, illness: str
) -> None:
    """The same seal opens when gpg is well again."""
    sealed = bob.keyring.encrypt_bytes(b"x", [bob.key_id])
    with ailing("--decrypt", illness) as keyring, pytest.raises(GpgFailed):
        keyring.decrypt_bytes(sealed, None)
    assert bob.keyring.decrypt_bytes(sealed, None) == b"x"


@pytest.mark.parametrize("illness", ["kill -KILL $$", "exit 2", STANDS])
def test_a_gpg_that_fails_says_nothing_against_a_signature(
    bob: Correspondent, ailing: Ailing, tmp_path: Path, illness: str
) -> None:
    """Neither over a file nor over bytes that come."""
    signed, proof = tmp_path / "signed", tmp_path / "proof"
    signed.write_bytes(b"x")
    proof.write_bytes(bob.keyring.sign_detached(signed, bob.key_id, None))
    with ailing("--verify", illness) as keyring:
        with pytest.raises(GpgFailed):
            keyring.verify_detached(proof.read_bytes(), signed)
        with keyring.verifying(proof) as gpg:
            gpg.write(b"x")
            with pytest.raises(GpgFailed):
                gpg.finish("checking")
    assert bob.keyring.verify_detached(proof.read_bytes(), signed).valid


def compressed(content: bytes, algorithm: int = 1) -> bytes:
    """Return a compressed packet of no stated length, by ZIP unless said otherwise."""
    return b"\xa3" + bytes((algorithm,)) + content


def deflated(*parts: bytes) -> bytes:
    """Return what such a packet has of these parts together."""
    work = zlib.compressobj(9, zlib.DEFLATED, -15)
    return b"".join(map(work.compress, parts)) + work.flush()


def test_a_gpg_that_gives_up_is_told_from_one_that_dies(
    bob: Correspondent, ailing: Ailing
) -> None:
    """The first may be the fault of what it was given; whether it is well shows elsewhere."""
    for damage in (compressed(b"\xff\xff\xff"), b"\xc3\x04\x04\x09\x00\x08"):
        with pytest.raises(GpgFailed) as caught:
            bob.keyring.decrypt_bytes(damage, None)
        assert caught.value.gave_up
    assert bob.keyring.opens_own_seal(bob.key_id, None)
    with ailing("--decrypt", DIES) as keyring:
        with pytest.raises(GpgFailed) as caught:
            keyring.decrypt_bytes(b"x", None)
        assert not caught.value.gave_up
        assert not keyring.opens_own_seal(bob.key_id, None)


def test_a_seal_that_keeps_gpg_at_work_without_end_is_refused(bob: Correspondent) -> None:
    """A few KB unpack to packets without end, of which nothing is written."""
    work = zlib.compressobj(9, zlib.DEFLATED, -15)
    markers = work.compress(b"\xca\x03PGP" * 200_000) + work.flush(zlib.Z_FULL_FLUSH)
    bomb = compressed(deflated(b"\xa3\x01", *[markers] * 100))
    assert len(bomb) < 10_000
    keyring = Keyring(bob.keyring.home, patience=0.2)
    with pytest.raises(BadMessage, match="at work for too long"):
        keyring.decrypt_bytes(bomb, None)


class Slow:
    """A source that makes gpg wait."""

    def __init__(self, content: bytes) -> None:
        self._content = io.BytesIO(content)

    def read(self, size: int, /) -> bytes:
        """Return what there is, after a while."""
        del size
        time.sleep(0.3)
        return self._content.read(len(self._content.getbuffer()) // 2)


def test_a_gpg_that_waits_for_us_does_not_stand_still(bob: Correspondent, ailing: Ailing) -> None:
    """What it reads may still be on its way, and what it writes not be taken yet."""
    sealed = bob.keyring.encrypt_bytes(b"x" * 1000, [bob.key_id])
    taken: list[bytes] = []

    def take(chunk: bytes) -> None:
        time.sleep(0.3)
        taken.append(chunk)

    with ailing("nothing", "exit 1") as keyring:
        keyring.decrypt_to(Slow(sealed), take, None)
    assert b"".join(taken) == b"x" * 1000


def readers_and_rest(sealed: bytes) -> tuple[bytes, bytes]:
    """Return the packet for the one reader of a small seal, and what follows it."""
    assert sealed[0] == 0x84, "an encrypted session key, its length in one byte"
    end = 2 + sealed[1]
    return sealed[:end], sealed[end:]


def test_a_seal_for_more_readers_than_a_mail_has_is_refused_at_once(
    amy: Correspondent, bob: Correspondent
) -> None:
    """A stranger's block has room for 87 000, and gpg would try our key for each."""
    reader, rest = readers_and_rest(amy.keyring.encrypt_bytes(b"x", [amy.key_id]))
    with pytest.raises(NotForUs):
        bob.keyring.decrypt_bytes(reader * 3 + rest, None)
    taken: list[bytes] = []
    source = io.BytesIO(reader * 80_000 + rest)
    with pytest.raises(BadMessage, match=f"more than {MAX_READERS} keys"):
        bob.keyring.decrypt_to(source, taken.append, None)
    assert not taken


def test_readers_are_counted_whichever_way_lengths_are_written_and_chunks_end() -> None:
    """The last that is allowed is read, and what was sealed may hold anything."""
    packets = (
        *(b"\x84\x03abc", b"\x85\x00\x03abc", b"\x86\0\0\0\x03abc", b"\xc1\x03abc"),
        *(b"\xc1\xff\0\0\0\x03abc", b"\xc1\xc0\x01" + bytes(193), b"\x84\xff" + bytes(255)),
    )
    for packet in packets:
        for size in (5, 100_000):
            enough = packet * MAX_READERS
            for sealed in (enough + b"\xd2\x03" + packet * 3, enough + b"\xd2\xe8" + packet * 3):
                assert read_in(CountedReaders(io.BytesIO(sealed)), size) == sealed
            with pytest.raises(BadMessage, match="more than"):
                read_in(CountedReaders(io.BytesIO(enough + packet + b"\xd2\x06abcdef")), size)
    for noise in (b"", b"-----BEGIN PGP MESSAGE-----" * 9000, bytes(100_000), b"\xff" * 100_000):
        assert read_in(CountedReaders(io.BytesIO(noise)), 1000) == noise


def read_in(source: CountedReaders, size: int) -> bytes:
    """Read all of a source in chunks."""
    return b"".join(iter(lambda: source.read(size), b""))


def test_seals_in_seals_are_refused_when_gpg_finds_too_many(ailing: Ailing) -> None:
    """It is ended as soon as it says so."""
    endless = "exec yes '[GNUPG:] ENC_TO 0 18 0' >&2"
    with ailing("--decrypt", endless) as keyring, pytest.raises(BadMessage, match="more than"):
        keyring.decrypt_bytes(b"x", None)


def test_what_gpg_says_without_end_takes_little_room() -> None:
    """The first of each kind and the last remarks are kept, wherever the chunks end."""
    transcript = Transcript()
    line = b"[GNUPG:] ENC_TO 0000000000000000 18 0\ngpg: encrypted with ECDH key\n"
    told = line * 10_000 + b"[GNUPG:] NODATA 1\ngpg: the end"
    for start in range(0, len(told), 997):
        transcript.hear(told[start : start + 997])
    status = transcript.status()
    assert transcript.said["ENC_TO"] == 10_000
    assert len(status.lines) < 100
    assert len(status.remarks) < 100
    assert status.has("NODATA")
    assert status.last_remark == "the end"
    transcript = Transcript()
    for _ in range(100):
        transcript.hear(bytes(10_000))
    assert len(transcript.status().remarks[0]) < 100_000


# Answers the agent, but for a subkey, which it names beside its main key: while there is a file
# that says so, that is cancelled.
PINENTRY = """#!/bin/sh
echo OK
while read word rest; do
    case $word in
    SETDESC) subkey=; case $rest in *main*) subkey=yes ;; esac; echo OK ;;
    GETPIN) if test -n "$subkey" -a -e {cancelling}; then echo "ERR 83886179 cancelled"
        else echo "D secret"; echo OK; fi ;;
    BYE) echo OK; exit ;;
    *) echo OK ;;
    esac
done
"""


def test_a_prompt_that_is_cancelled_is_asked_again(short_directory: Path, tmp_path: Path) -> None:
    """With an agent a seal that did not open may still be for us."""
    home, cancelling = quick_home(Path(mkdtemp(dir=short_directory)) / "gpg"), tmp_path / "cancel"
    with Keyring(home) as keyring:
        key_id: KeyId = keyring.create("Amy", "amy@a.example", "secret")
        sealed = keyring.encrypt_bytes(b"x", [key_id])
    pinentry = tmp_path / "pinentry"
    pinentry.write_text(PINENTRY.format(cancelling=cancelling))
    pinentry.chmod(0o700)
    with (home / "gpg-agent.conf").open("a") as file:
        file.write(f"pinentry-program {pinentry}\n")
    keyring = Keyring(home, agent=True)
    try:
        cancelling.touch()
        with pytest.raises(NotOpened):
            keyring.decrypt_bytes(sealed, None)
        assert keyring.opens(key_id, None)
        keyring.forget_passphrases()
        cancelling.unlink()
        assert keyring.decrypt_bytes(sealed, None) == b"x"
    finally:
        keyring.forget_passphrases()
