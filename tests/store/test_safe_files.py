"""Small files are replaced whole, with their mode, or not at all."""

from pathlib import Path

import pytest

from sealmail_store import make_directory_durably, write_durably


def test_a_file_is_written_and_replaced_with_its_mode(tmp_path: Path) -> None:
    """The content is the last one, the mode is the one asked for, no temp file stays."""
    path = tmp_path / "config.toml"
    write_durably(path, b"old", 0o644)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"old", 0o644)
    write_durably(path, b"new")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o600)
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    """A target that cannot be replaced keeps its content, and no temp file stays."""
    path = tmp_path / "taken"
    (path / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="taken"):
        write_durably(path, b"new")
    assert list(tmp_path.iterdir()) == [path]


def test_directories_are_made_private(tmp_path: Path) -> None:
    """All missing parents are made, for the owner only; existing ones are left alone."""
    path = tmp_path / "a" / "b"
    make_directory_durably(path)
    make_directory_durably(path)
    assert path.stat().st_mode & 0o777 == 0o700
    assert path.parent.stat().st_mode & 0o777 == 0o700
