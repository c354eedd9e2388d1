"""A letter is written as a ZIP that anybody can read, and read again."""

import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from tests.client.samples import AMY, BOB, header

from sealmail_client.errors import BadMessage, CannotSeal, NoSuchAttachment, SourceChanged
from sealmail_client.letters import AckFile, Attachment, Forwarded, Letter
from sealmail_client.message_zip import open_letter, zip_chunks


@pytest.fixture
def letter(tmp_path: Path) -> Letter:
    """Return a letter with everything in it."""
    picture, original = tmp_path / "source.png", tmp_path / "original.zip"
    picture.write_bytes(b"\x89PNG" * 200_000)
    original.write_bytes(b"".join(zip_chunks(Letter(header(), "the original"))))
    return Letter(
        header=header(AMY, BOB, forwarded_id="749b112cdc5dc9af9e481387900d6687991373ca"),
        text="Grüße,\nAmy\n",
        html="<p>Grüße</p>",
        ack_files=(AckFile(BOB, b"a" * 20, sealed=False),),
        own_key=b"an announcement",
        attachments=(
            Attachment("../holiday.png", picture),
            Attachment("notes.txt", picture),
            Attachment("notes.txt", picture),
        ),
        forwarded=Forwarded("749b112cdc5dc9af9e481387900d6687991373ca", original, b"signature"),
    )


@pytest.fixture
def packed(letter: Letter, tmp_path: Path) -> Path:
    """Return the letter as a file."""
    path = tmp_path / "message.zip"
    path.write_bytes(b"".join(zip_chunks(letter)))
    return path


def test_the_entries_have_the_names_of_the_specification(packed: Path) -> None:
    """The entries have the names of the specification."""
    with zipfile.ZipFile(packed) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == [
            "HEADER.TXT",
            "BODY.TXT",
            "BODY.HTML",
            f"ACK_{BOB.hex}.BIN",
            f"KEY_{AMY.hex}.ASC",
            "__._holiday.png",
            "_notes.txt",
            "_notes (2).txt",
            "749b112cdc5dc9af9e481387900d6687991373ca.DTS",
            "749b112cdc5dc9af9e481387900d6687991373ca.ZIP",
        ]
        for info in archive.infolist():
            assert info.compress_type == zipfile.ZIP_STORED
            assert info.date_time == (1980, 1, 1, 0, 0, 0)


def test_writing_twice_gives_the_same_bytes(letter: Letter) -> None:
    """Writing twice gives the same bytes."""
    assert b"".join(zip_chunks(letter)) == b"".join(zip_chunks(letter))


def test_a_letter_comes_back_whole(letter: Letter, packed: Path, tmp_path: Path) -> None:
    """A letter comes back whole."""
    opened = open_letter(packed)
    assert opened.header == letter.header
    assert (opened.text, opened.html) == (letter.text, letter.html)
    assert opened.ack_file(BOB) == letter.ack_files[0]
    assert opened.ack_file(AMY) is None
    assert opened.key_files() == {AMY: b"an announcement"}
    names = [(one.name, one.size) for one in opened.attachments]
    assert names == [
        ("_._holiday.png", 800_000),
        ("notes.txt", 800_000),
        ("notes (2).txt", 800_000),
    ]
    saved = opened.save_attachment("notes.txt", tmp_path)
    assert saved == tmp_path / "notes.txt"
    assert saved.read_bytes() == letter.attachments[0].path.read_bytes()
    assert saved.stat().st_mode & 0o777 == 0o600


def test_a_forwarded_original_comes_back_with_its_signature(packed: Path, tmp_path: Path) -> None:
    """A forwarded original comes back with its signature."""
    forwarded = open_letter(packed).save_forwarded(tmp_path)
    assert forwarded is not None
    assert forwarded.signature == b"signature"
    assert open_letter(forwarded.zip_file).text == "the original"


def test_saving_never_overwrites_nor_follows_a_link(packed: Path, tmp_path: Path) -> None:
    """Saving never overwrites nor follows a link."""
    (tmp_path / "notes.txt").write_text("precious")
    (tmp_path / "notes (2).txt").symlink_to(tmp_path / "elsewhere")
    saved = open_letter(packed).save_attachment("notes.txt", tmp_path)
    assert saved == tmp_path / "notes (3).txt"
    assert (tmp_path / "notes.txt").read_text() == "precious"
    assert not (tmp_path / "elsewhere").exists()


def test_only_attachments_of_the_letter_can_be_saved(packed: Path, tmp_path: Path) -> None:
    """Only attachments of the letter can be saved."""
    for name in ("HEADER.TXT", "../x", "/etc/passwd"):
        with pytest.raises(NoSuchAttachment):
            open_letter(packed).save_attachment(name, tmp_path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"text": "\ud800"}, "UTF-8"),
        ({"ack_files": (AckFile(BOB, b"ack=00|bt=00", sealed=False),)}, "must be sealed"),
        ({"ack_files": (AckFile(AMY, b"a" * 20, sealed=False),)}, "does not name"),
        ({"forwarded": None}, "belong together"),
        ({"attachments": (Attachment("x", Path("/nowhere/x")),)}, "cannot read /nowhere/x"),
        ({"attachments": (Attachment("x", Path("/dev/zero")),)}, "is not a file"),
        ({"attachments": tuple(Attachment("x", Path("x")) for _ in range(5000))}, "at most 4096"),
    ],
)
def test_what_cannot_be_packed_is_told(
    letter: Letter, change: dict[str, object], reason: str
) -> None:
    """What cannot be packed is told."""
    with pytest.raises(CannotSeal, match=reason):
        list(zip_chunks(replace(letter, **change)))  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [10, 800_001])
def test_a_file_that_changes_its_size_while_it_is_packed_is_noticed(
    letter: Letter, size: int
) -> None:
    """A file that changes its size while it is packed is noticed."""
    path = letter.attachments[0].path
    chunks = zip_chunks(letter)
    read = 0
    while read < 300_000:
        read += len(next(chunks))
    path.write_bytes(b"x" * size)
    with pytest.raises(SourceChanged):
        list(chunks)


def test_a_sealed_ack_file_is_preferred_and_told_apart(tmp_path: Path) -> None:
    """A sealed ack file is preferred and told apart."""
    letter = Letter(header(), ack_files=(AckFile(BOB, b"sealed bytes", sealed=True),))
    path = tmp_path / "zip"
    path.write_bytes(b"".join(zip_chunks(letter)))
    assert open_letter(path).ack_file(BOB) == letter.ack_files[0]


def test_the_body_in_xml_and_unknown_entries_are_not_looked_at(tmp_path: Path) -> None:
    """The body in xml and unknown entries are not looked at."""
    path = tmp_path / "zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("HEADER.TXT", header().to_bytes())
        archive.writestr("BODY.XML", "<!ENTITY bomb>")
        archive.writestr("later/extension.json", "{}")
        archive.writestr("BODY.TXT", b"caf\xe9")
    opened = open_letter(path)
    assert (opened.text, opened.html, opened.attachments) == ("caf\ufffd", None, ())


def test_a_zip_without_header_is_no_letter(tmp_path: Path) -> None:
    """A zip without header is no letter."""
    path = tmp_path / "zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("BODY.TXT", "x")
    with pytest.raises(BadMessage, match=r"HEADER\.TXT"):
        open_letter(path)


@pytest.mark.long
def test_an_attachment_above_four_gib_is_written_as_zip64(tmp_path: Path) -> None:
    """An attachment above four gib is written as zip64."""
    source, path = tmp_path / "large", tmp_path / "zip"
    size = 5 * 1024**3
    with source.open("wb") as file:
        file.truncate(size)
    with path.open("wb") as target:
        target.writelines(zip_chunks(Letter(header(), attachments=(Attachment("large", source),))))
    opened = open_letter(path)
    assert [one.size for one in opened.attachments] == [size]
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
