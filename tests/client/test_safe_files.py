"""Large files that are written with their syncs on the way."""

from pathlib import Path

import pytest

from sealmail_client import safe_files
from sealmail_client.safe_files import create_private, syncing


def test_a_file_is_whole_however_often_it_was_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks arrive in order while a thread brings them to the disk."""
    monkeypatch.setattr(safe_files, "_SYNC_EVERY", 1000)
    chunks = [bytes([number]) * 700 for number in range(100)]
    with create_private(tmp_path / "file") as file, syncing(file) as synced:
        for chunk in chunks:
            synced.write(chunk)
    assert (tmp_path / "file").read_bytes() == b"".join(chunks)


def test_a_disk_that_fails_on_the_way_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system reports it once, to the sync that met it."""

    def failing(handle: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(safe_files, "_SYNC_EVERY", 1)
    monkeypatch.setattr("os.fdatasync", failing)
    with (
        pytest.raises(OSError, match="Input/output"),
        create_private(tmp_path / "file") as file,
        syncing(file) as synced,
    ):
        synced.write(b"x")
