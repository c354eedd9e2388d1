"""Files that survive a crash: temp file, fsync, rename, fsync of the directory."""

import os
import tempfile
from pathlib import Path

PRIVATE_FILE = 0o600
PRIVATE_DIRECTORY = 0o700


def write_durably(path: Path, content: bytes, mode: int = PRIVATE_FILE) -> None:
    """Make ``path`` hold ``content``, on stable storage when this returns.

    A crash leaves the old content or the new, never a mixture; nobody can read the file
    before it has its ``mode``.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def make_directory_durably(path: Path) -> None:
    """Create ``path`` and its parents where missing, private to the owner, on stable storage."""
    if path.is_dir():
        return
    make_directory_durably(path.parent)
    path.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Bring the names in directory ``path`` to stable storage."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
