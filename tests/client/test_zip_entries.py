"""Hostile ZIPs are refused with a reason, and cost little."""

import io
import stat
import struct
import tracemalloc
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealmail_client.errors import BadMessage
from sealmail_client.zip_entries import MAX_DIRECTORY_BYTES, MAX_ENTRIES, ZipEntries

LOCAL_HEAD, CENTRAL_HEAD, END_RECORD = b"PK\3\4", b"PK\1\2", b"PK\5\6"


def packed(*names: str, content: bytes = b"content", method: int = zipfile.ZIP_STORED) -> bytes:
    """Return an ordinary ZIP."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as archive:
        for name in names:
            archive.writestr(zipfile.ZipInfo(name), content, compress_type=method)
    return target.getvalue()


def changed(raw: bytes, record: bytes, offset: int, form: str, value: int) -> bytes:
    """Return the ZIP with one number in the first such record changed."""
    result = bytearray(raw)
    struct.pack_into(form, result, raw.index(record) + offset, value)
    return bytes(result)


def examined(raw: bytes, tmp_path: Path) -> ZipEntries:
    """Write the bytes to a file and examine it."""
    path = tmp_path / "zip"
    path.write_bytes(raw)
    return ZipEntries.examine(path)


def unpacked(raw: bytes, tmp_path: Path) -> list[bytes]:
    """Examine the bytes and read every entry."""
    entries = examined(raw, tmp_path)
    return [entries.read(one, 10**8) for one in entries.entries.values()]


def symlink() -> bytes:
    """Return a ZIP whose entry is a link to a file of the reader."""
    target, info = io.BytesIO(), zipfile.ZipInfo("_link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr(info, "/etc/passwd")
    return target.getvalue()


def overlapping() -> bytes:
    """Return a ZIP with two entries that use the same bytes."""
    raw = packed("_a", "_b", content=b"x" * 100_000)
    second = raw.index(CENTRAL_HEAD, raw.index(CENTRAL_HEAD) + 4)
    result = bytearray(raw)
    struct.pack_into("<L", result, second + 42, 0)
    return bytes(result)


def bomb() -> bytes:
    """Return a ZIP of some eighty kilobytes that unpacks to as many megabytes."""
    return packed("_zeros", content=bytes(80 * 1024 * 1024), method=zipfile.ZIP_DEFLATED)


def duplicate() -> bytes:
    """Return a ZIP with two entries of one name."""
    return packed("_a", "_b").replace(b"_b", b"_a")


ONE = packed("_a")
HOSTILE = [
    pytest.param(b"", "cut off", id="empty"),
    pytest.param(b"PK" * 100, "cut off", id="noise"),
    pytest.param(ONE[:-1], "cut off", id="truncated"),
    pytest.param(ONE + b"x", "cut off", id="appended"),
    pytest.param(b"x" + ONE, "strange place", id="prefixed"),
    pytest.param(packed("../a"), "leads out", id="parent"),
    pytest.param(packed("_../../a"), "leads out", id="parent-of-attachment"),
    pytest.param(packed("_a/../../b"), "leads out", id="parent-inside"),
    pytest.param(packed("_..\\a"), "leads out", id="parent-backslash"),
    pytest.param(packed("/etc/passwd"), "leads out", id="absolute"),
    pytest.param(packed("_/etc/passwd"), "leads out", id="absolute-attachment"),
    pytest.param(packed("_C:\\x"), "leads out", id="drive"),
    pytest.param(packed("a/"), "not a plain file", id="directory"),
    pytest.param(symlink(), "not a plain file", id="symlink"),
    pytest.param(ONE.replace(b"_a", b"a\0"), "zero byte", id="zero-byte"),
    pytest.param(duplicate(), "one name", id="duplicate"),
    pytest.param(packed("BODY.TXT", "body.txt"), "one name", id="duplicate-by-case"),
    pytest.param(packed("_a", method=zipfile.ZIP_LZMA), "unknown compression", id="lzma"),
    pytest.param(packed("_a", method=zipfile.ZIP_BZIP2), "unknown compression", id="bzip2"),
    pytest.param(changed(ONE, CENTRAL_HEAD, 8, "<H", 1), "encrypted", id="encrypted"),
    pytest.param(changed(ONE, CENTRAL_HEAD, 24, "<L", 9), "two sizes", id="lying-size"),
    pytest.param(changed(ONE, CENTRAL_HEAD, 42, "<L", 5), "without a head", id="no-local-head"),
    pytest.param(changed(ONE, CENTRAL_HEAD, 42, "<L", 2**31), "outside", id="outside"),
    pytest.param(overlapping(), "overlap", id="overlapping"),
    pytest.param(bomb(), "far more than its size", id="bomb"),
    pytest.param(packed(*(f"_{n}" for n in range(MAX_ENTRIES + 1))), "more than", id="count"),
    pytest.param(packed(*("n" * 60_000 + str(n) for n in range(40))), "very long", id="names"),
    pytest.param(changed(ONE, END_RECORD, 10, "<H", 2), "as many entries", id="lying-count"),
    pytest.param(changed(ONE, END_RECORD, 12, "<L", 2**31), "very long", id="directory-size"),
    pytest.param(changed(ONE, END_RECORD, 16, "<L", 3), "strange place", id="directory-offset"),
    pytest.param(changed(ONE, END_RECORD, 4, "<H", 1), "several parts", id="disks"),
]


@pytest.mark.parametrize(("raw", "reason"), HOSTILE)
def test_a_hostile_zip_is_refused(raw: bytes, reason: str, tmp_path: Path) -> None:
    """A hostile zip is refused."""
    with pytest.raises(BadMessage, match=reason):
        examined(raw, tmp_path)


@pytest.mark.parametrize("value", [1, 10_000, 2_000_000])
def test_a_compressed_entry_that_lies_about_its_size_is_refused(
    value: int, tmp_path: Path
) -> None:
    """A compressed entry that lies about its size is refused."""
    raw = packed("_a", content=b"x" * 100_000, method=zipfile.ZIP_DEFLATED)
    with pytest.raises(BadMessage):
        unpacked(changed(raw, CENTRAL_HEAD, 24, "<L", value), tmp_path)


def test_damaged_content_is_refused(tmp_path: Path) -> None:
    """Damaged content is refused."""
    with pytest.raises(BadMessage, match="damaged"):
        unpacked(ONE.replace(b"content", b"contend"), tmp_path)


def test_another_name_in_front_of_the_content_is_refused(tmp_path: Path) -> None:
    """Another name in front of the content is refused."""
    with pytest.raises(BadMessage, match="damaged"):
        unpacked(ONE.replace(b"_a", b"_b", 1), tmp_path)


def test_an_entry_that_is_larger_than_allowed_is_not_read(tmp_path: Path) -> None:
    """An entry that is larger than allowed is not read."""
    entries = examined(ONE, tmp_path)
    with pytest.raises(BadMessage, match="larger than 6 bytes"):
        entries.read(entries.entries["_a"], 6)


def test_zip64_records_are_read(tmp_path: Path) -> None:
    """Zip64 records are read."""
    target = io.BytesIO()
    with (
        zipfile.ZipFile(target, "w") as archive,
        archive.open("_a", "w", force_zip64=True) as entry,
    ):
        entry.write(b"content")
    raw = target.getvalue()
    end = raw.index(END_RECORD)
    directory, length = raw.index(CENTRAL_HEAD), end - raw.index(CENTRAL_HEAD)
    record = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, length, directory)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, end, 1)
    short = struct.pack("<4s4H2LH", END_RECORD, 0, 0, 65535, 65535, 2**32 - 1, 2**32 - 1, 0)
    whole = raw[:end] + record + locator + short
    assert unpacked(whole, tmp_path) == [b"content"]
    for lie in (changed(whole, b"PK\6\7", 8, "<Q", 0), changed(whole, b"PK\6\6", 40, "<Q", 2**62)):
        with pytest.raises(BadMessage):
            examined(lie, tmp_path)


def test_refusing_a_bomb_needs_little_memory(tmp_path: Path) -> None:
    """Refusing a bomb needs little memory."""
    raw = bomb()
    tracemalloc.start()
    try:
        with pytest.raises(BadMessage):
            examined(raw, tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 4 * MAX_DIRECTORY_BYTES
    finally:
        tracemalloc.stop()


SAMPLE = packed("HEADER.TXT", "_a", method=zipfile.ZIP_DEFLATED)


@given(st.data())
def test_mutated_zips_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Mutated zips are read or refused."""
    raw = bytearray(SAMPLE)
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with suppress(BadMessage):
        unpacked(bytes(raw), tmp_path_factory.getbasetemp())
