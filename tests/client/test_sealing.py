"""Letters are sealed and opened, by us and by the bare programs, whatever their size."""

import hashlib
import io
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.client.conftest import Correspondent
from tests.client.samples import header

from sealmail_client.cutting import JoinedPieces, PieceFile, cut, read_piece
from sealmail_client.errors import (
    BadMessage,
    CannotSeal,
    NotForUs,
    SourceChanged,
    WrongPassphrase,
)
from sealmail_client.headers import Place
from sealmail_client.keyring import Keyring, Readable
from sealmail_client.letters import AckFile, Attachment, Forwarded, Letter
from sealmail_client.message_zip import open_letter
from sealmail_client.progress import Report
from sealmail_client.sealing import MAX_TRIES, OpenedSeal, open_seal, seal
from sealmail_protocol.keys import KeyId

MAX_MEMORY_KIB = 150 * 1024
ROOT = Path(__file__).parents[2]


def plain_gpg(home: Path, *arguments: str, given: bytes = b"") -> bytes:
    """Run gpg as a user would at a terminal."""
    options = ("--batch", "--no-tty", "--pinentry-mode", "loopback", "--trust-model", "always")
    done = subprocess.run(
        ["gpg", "--homedir", str(home), *options, *arguments],
        input=given,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.fixture
def letter(amy: Correspondent, bob: Correspondent, tmp_path: Path) -> Letter:
    """Return a letter from Amy to Bob with an attachment."""
    attached = tmp_path / "attached"
    attached.write_bytes(b"attached" * 100_000)
    return Letter(
        header=header(amy.key_id, bob.key_id),
        text="Grüße",
        ack_files=(AckFile(bob.key_id, b"a" * 20, sealed=False),),
        attachments=(Attachment("file.bin", attached),),
    )


def seal_as(
    sender: Correspondent,
    letter: Letter,
    target: Path,
    *readers: KeyId,
    keyring: Keyring | None = None,
) -> None:
    """Seal a letter with the sender's key and passphrase."""
    seal(
        letter,
        keyring=keyring or sender.keyring,
        signer=sender.key_id,
        passphrase=sender.passphrase,
        readers=readers,
        target=target,
        zip_file=target.with_name("own.zip"),
    )
    target.with_name("own.zip").unlink()


def open_as(reader: Correspondent, sealed: Path | Readable, directory: Path) -> OpenedSeal:
    """Open a seal with the reader's keys."""
    return open_seal(
        sealed, keyring=reader.keyring, passphrase=reader.passphrase, directory=directory
    )


class Onlooker:
    """Keeps what tasks report."""

    def __init__(self) -> None:
        self.seen: dict[str, list[float]] = {}

    @contextmanager
    def task(self, label: str, *, brief: bool = False) -> Iterator[Report]:
        """Watch a task that is not brief."""
        yield (lambda _: None) if brief else self.seen.setdefault(label, []).append


def test_signing_and_sealing_tell_how_far_they_are(
    amy: Correspondent, letter: Letter, tmp_path: Path
) -> None:
    """The share that is done grows to the whole."""
    onlooker = Onlooker()
    seal(
        letter,
        keyring=amy.keyring,
        signer=amy.key_id,
        passphrase=amy.passphrase,
        readers=[amy.key_id],
        target=tmp_path / "sealed",
        zip_file=tmp_path / "own.zip",
        watcher=onlooker,
    )
    assert list(onlooker.seen) == ["signing", "sealing"]
    for shares in onlooker.seen.values():
        assert shares == sorted(shares)
        assert shares[0] < 0.5
        assert shares[-1] == 1.0


def test_a_letter_is_sealed_cut_joined_opened_and_verified(
    amy: Correspondent, bob: Correspondent, letter: Letter, tmp_path: Path
) -> None:
    """A letter is sealed cut joined opened and verified."""
    sealed = tmp_path / "sealed"
    seal_as(amy, letter, sealed, bob.key_id)
    message = cut(sealed, 100_000)
    files = []
    for piece in message.pieces:
        files.append(PieceFile(piece.key, tmp_path / piece.key.hex))
        files[-1].path.write_bytes(read_piece(sealed, piece))
    joined = JoinedPieces.of(files)
    opened = open_as(bob, joined, tmp_path)
    assert joined.message_hash() == message.message_hash
    check = opened.check
    assert check is not None
    assert check == bob.keyring.verify_detached(opened.signature, opened.zip_file)
    assert check.valid
    assert check.signer == amy.key_id
    assert opened.zip_file.stat().st_mode & 0o777 == 0o600
    received = open_letter(opened.zip_file)
    assert received.header == letter.header
    assert received.text == "Grüße"
    assert received.ack_file(bob.key_id) == letter.ack_files[0]


def test_what_we_seal_is_opened_with_gpg_and_unzip_alone(
    amy: Correspondent, bob: Correspondent, letter: Letter, tmp_path: Path
) -> None:
    """What we seal is opened with gpg and unzip alone."""
    sealed, zip_file, signature = (tmp_path / name for name in ("sealed", "m.zip", "m.sig"))
    seal_as(amy, letter, sealed, bob.key_id)
    assert cut(sealed).message_hash.raw == hashlib.sha1(sealed.read_bytes()).digest()
    plain = plain_gpg(bob.keyring.home, "--decrypt", str(sealed))
    length = int.from_bytes(plain[:2], "big")
    signature.write_bytes(plain[2 : 2 + length])
    zip_file.write_bytes(plain[2 + length :])
    plain_gpg(bob.keyring.home, "--verify", str(signature), str(zip_file))
    with zipfile.ZipFile(zip_file) as archive:
        assert archive.testzip() is None
        assert archive.read("HEADER.TXT") == letter.header.to_bytes()
        assert archive.read("BODY.TXT") == "Grüße".encode()
        assert archive.read(f"ACK_{bob.key_id.hex}.BIN") == b"a" * 20
        assert archive.read("_file.bin") == b"attached" * 100_000


@pytest.mark.parametrize("compression", ["0", "6"])
def test_a_mail_built_by_hand_with_gpg_and_zip_is_opened(
    amy: Correspondent, bob: Correspondent, tmp_path: Path, compression: str
) -> None:
    """A mail built by hand with gpg and zip is opened."""
    archive_file, sealed = tmp_path / "by-hand.zip", tmp_path / "sealed"
    with zipfile.ZipFile(archive_file, "w", zipfile.ZIP_DEFLATED) as archive:
        head = header(bob.key_id, amy.key_id).to_bytes().replace(b"\n", b"\r\n")
        archive.writestr("HEADER.TXT", head.replace(b"KeyTransport-", b"Key-Transport-"))
        archive.writestr("BODY.TXT", "by hand")
        archive.writestr("BODY.XML", "<richtext/>")
        archive.writestr(f"ACK_{amy.key_id.hex}.BIN", b"b" * 20)
        archive.writestr("_a.txt", "attached")
    signature = plain_gpg(
        bob.keyring.home, "--detach-sign", "--output", "-", given=archive_file.read_bytes()
    )
    plain = len(signature).to_bytes(2, "big") + signature + archive_file.read_bytes()
    # Without hidden recipients, as originals do it.
    sealed.write_bytes(
        plain_gpg(
            bob.keyring.home, "-z", compression, "--encrypt", "-r", amy.key_id.hex, given=plain
        )
    )
    opened = open_as(amy, sealed, tmp_path)
    assert opened.zip_file.read_bytes() == archive_file.read_bytes()
    check = amy.keyring.verify_detached(opened.signature, opened.zip_file)
    assert (check.valid, check.signer) == (True, bob.key_id)
    received = open_letter(opened.zip_file)
    assert received.header == header(bob.key_id, amy.key_id)
    assert received.text == "by hand"
    assert [one.name for one in received.attachments] == ["a.txt"]


def test_the_receiver_of_a_forwarded_letter_verifies_its_original(
    amy: Correspondent, bob: Correspondent, letter: Letter, tmp_path: Path
) -> None:
    """The receiver of a forwarded letter verifies its original."""
    sealed, saved = tmp_path / "sealed", tmp_path / "saved"
    saved.mkdir()
    seal_as(amy, letter, sealed, bob.key_id)
    original = open_as(bob, sealed, tmp_path)
    message_id = "749b112cdc5dc9af9e481387900d6687991373ca"
    forward = Letter(
        header=header(bob.key_id, amy.key_id, forwarded_id=message_id),
        text="see below",
        forwarded=Forwarded(message_id, original.zip_file, original.signature),
    )
    seal_as(bob, forward, sealed, amy.key_id)
    opened = open_as(amy, sealed, saved)
    assert amy.keyring.verify_detached(opened.signature, opened.zip_file).signer == bob.key_id
    forwarded = open_letter(opened.zip_file).save_forwarded(saved)
    assert forwarded is not None
    check = amy.keyring.verify_detached(forwarded.signature, forwarded.zip_file)
    assert (check.valid, check.signer) == (True, amy.key_id)
    assert open_letter(forwarded.zip_file).header == letter.header


def test_two_threads_open_seals_with_one_keyring(bob: Correspondent, tmp_path: Path) -> None:
    """Two threads open seals with one keyring."""
    contents = {bytes([number]) * 1_000_000 for number in range(6)}
    sealed = [bob.keyring.encrypt_bytes(content, [bob.key_id]) for content in contents]
    with ThreadPoolExecutor(2) as threads:
        opened = set(threads.map(lambda raw: bob.keyring.decrypt_bytes(raw, None), sealed))
    assert opened == contents


class InterruptedKeyring(Keyring):
    """A keyring during whose signing something happens to the files."""

    happens: Callable[[], object]

    def sign_detached(
        self, source: Path | Readable, key_id: KeyId, passphrase: str | None
    ) -> bytes:
        """Sign, and let it happen before anybody looks at the files again."""
        signature = super().sign_detached(source, key_id, passphrase)
        self.happens()
        return signature


@pytest.fixture
def interrupted(amy: Correspondent, bob: Correspondent) -> InterruptedKeyring:
    """Return Amy's keyring, with things happening."""
    return InterruptedKeyring(amy.keyring.home)


def test_a_file_that_changes_once_is_sealed_as_it_is_at_last(
    amy: Correspondent,
    bob: Correspondent,
    letter: Letter,
    interrupted: InterruptedKeyring,
    tmp_path: Path,
) -> None:
    """A file that changes once is sealed as it is at last."""
    last = b"changed!" * 100_000
    path = letter.attachments[0].path
    interrupted.happens = lambda: path.read_bytes() == last or path.write_bytes(last)
    seal_as(amy, letter, tmp_path / "sealed", bob.key_id, keyring=interrupted)
    opened = open_as(bob, tmp_path / "sealed", tmp_path)
    assert bob.keyring.verify_detached(opened.signature, opened.zip_file).valid
    saved = open_letter(opened.zip_file).save_attachment("file.bin", tmp_path)
    assert saved.read_bytes() == last


def test_a_change_that_hides_its_time_is_noticed_all_the_same(
    amy: Correspondent,
    bob: Correspondent,
    letter: Letter,
    interrupted: InterruptedKeyring,
    tmp_path: Path,
) -> None:
    """The size is the same and the time was set back, three times in a row."""
    path, times = letter.attachments[0].path, []

    def change() -> None:
        found = path.stat()
        times.append(found)
        path.write_bytes(bytes([len(times)]) * found.st_size)
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))

    interrupted.happens = change
    with pytest.raises(SourceChanged):
        seal_as(amy, letter, tmp_path / "sealed", bob.key_id, keyring=interrupted)
    assert len(times) == MAX_TRIES
    assert [one.name for one in tmp_path.iterdir()] == ["attached"]


def test_a_file_that_vanishes_is_named(
    amy: Correspondent,
    bob: Correspondent,
    letter: Letter,
    interrupted: InterruptedKeyring,
    tmp_path: Path,
) -> None:
    """A file that vanishes is named."""
    interrupted.happens = letter.attachments[0].path.unlink
    with pytest.raises(CannotSeal, match="attached: No such file"):
        seal_as(amy, letter, tmp_path / "sealed", bob.key_id, keyring=interrupted)
    assert list(tmp_path.iterdir()) == []


def test_what_is_sealed_is_what_was_signed_whatever_becomes_of_the_files(
    amy: Correspondent, bob: Correspondent, letter: Letter, tmp_path: Path
) -> None:
    """A file that is written to while the signed letter is being sealed changes nothing."""

    class Busy(Keyring):
        """A keyring before whose sealing a file changes."""

        def encrypt(
            self, source: Path | Readable, target: Path, recipients: Sequence[KeyId]
        ) -> None:
            """Change it, then seal."""
            letter.attachments[0].path.write_bytes(b"later")
            super().encrypt(source, target, recipients)

    seal_as(amy, letter, tmp_path / "sealed", bob.key_id, keyring=Busy(amy.keyring.home))
    opened = open_as(bob, tmp_path / "sealed", tmp_path)
    assert opened.check is not None
    assert opened.check.valid
    saved = open_letter(opened.zip_file).save_attachment("file.bin", tmp_path)
    assert saved.read_bytes() == b"attached" * 100_000


def test_a_copy_that_names_a_bcc_recipient_is_for_nobody_else(
    amy: Correspondent, bob: Correspondent, tmp_path: Path
) -> None:
    """A copy that names a bcc recipient is for nobody else."""
    letter = Letter(header(amy.key_id, bob.key_id, place=Place.BCC), "secretly")
    other = KeyId(bytes(20))
    with pytest.raises(CannotSeal, match="Bcc"):
        seal_as(amy, letter, tmp_path / "sealed", bob.key_id, other)
    seal_as(amy, letter, tmp_path / "sealed", bob.key_id)
    assert open_letter(open_as(bob, tmp_path / "sealed", tmp_path).zip_file).text == "secretly"


def test_nobody_signs_under_the_name_of_another(
    amy: Correspondent, bob: Correspondent, tmp_path: Path
) -> None:
    """Nobody signs under the name of another."""
    with pytest.raises(CannotSeal, match="another sender"):
        seal_as(amy, Letter(header(bob.key_id, amy.key_id)), tmp_path / "sealed", bob.key_id)


def test_a_wrong_passphrase_leaves_nothing_behind(
    amy: Correspondent, bob: Correspondent, letter: Letter, tmp_path: Path
) -> None:
    """A wrong passphrase leaves nothing behind."""
    # The agent remembers the right one from other tests.
    amy.keyring.close()
    with pytest.raises(WrongPassphrase):
        seal(
            letter,
            keyring=amy.keyring,
            signer=amy.key_id,
            passphrase="wrong",
            readers=[bob.key_id],
            target=tmp_path / "sealed",
            zip_file=tmp_path / "own.zip",
        )
    assert [one.name for one in tmp_path.iterdir()] == ["attached"]


def test_a_seal_for_others_is_told_from_a_damaged_one(
    amy: Correspondent, bob: Correspondent, letter: Letter, tmp_path: Path
) -> None:
    """A seal for others is told from a damaged one."""
    sealed = tmp_path / "sealed"
    seal_as(amy, letter, sealed, bob.key_id)
    with pytest.raises(NotForUs):
        open_as(amy, sealed, tmp_path)
    raw = bytearray(sealed.read_bytes())
    raw[-30] ^= 1
    sealed.write_bytes(raw)
    with pytest.raises(BadMessage, match="damaged"):
        open_as(bob, sealed, tmp_path)
    sealed.write_bytes(raw[: len(raw) // 2])
    with pytest.raises(BadMessage):
        open_as(bob, sealed, tmp_path)
    assert not (tmp_path / "message.zip").exists()


@pytest.mark.parametrize(
    ("plain", "reason"),
    [
        pytest.param(b"", "signature", id="empty"),
        pytest.param(b"\0", "ends within", id="half-a-length"),
        pytest.param(b"\0\0PK", "does not begin with", id="no-signature"),
        pytest.param(b"\xff\xff" + b"x" * 70_000, "does not begin with", id="negative-length"),
        pytest.param(b"\0\x09short", "ends within", id="short"),
    ],
)
def test_content_without_a_whole_signature_is_refused(
    bob: Correspondent, tmp_path: Path, plain: bytes, reason: str
) -> None:
    """Content without a whole signature is refused."""
    sealed = tmp_path / "sealed"
    bob.keyring.encrypt(io.BytesIO(plain), sealed, [bob.key_id])
    with pytest.raises(BadMessage, match=reason):
        open_as(bob, sealed, tmp_path)
    assert not (tmp_path / "message.zip").exists()


def peak_memory(directory: Path, mebibytes: int) -> int:
    """Return the KiB that sealing and opening an attachment of this size took at most."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.client.sealing_program", str(directory), str(mebibytes)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_memory_stays_flat_for_a_large_attachment(short_directory: Path) -> None:
    """Memory stays flat for a large attachment."""
    directory = short_directory / "large"
    directory.mkdir()
    assert peak_memory(directory, 256) < MAX_MEMORY_KIB


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_memory_stays_flat_for_ten_gibibytes(short_directory: Path) -> None:
    """Memory stays flat for ten gibibytes."""
    directory = short_directory / "huge"
    directory.mkdir()
    assert peak_memory(directory, 10 * 1024) < MAX_MEMORY_KIB
    for path in directory.glob("*.zip"):
        path.unlink()
