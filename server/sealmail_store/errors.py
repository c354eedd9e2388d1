"""What can go wrong with a store; every message says what to do about it."""

from pathlib import Path

from sealmail_protocol.keys import BlockKey


class StoreError(Exception):
    """Any failure of the block store."""


class StoreMissing(StoreError):
    """There is no store in this directory: create one, or name the right directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__(f"{directory} holds no block store; create it first")
        self.directory = directory


class StoreLocked(StoreError):
    """Another process has the store open: stop it, or speak to it instead."""

    def __init__(self, directory: Path) -> None:
        super().__init__(f"{directory} is in use: stop the other sealmaild first")
        self.directory = directory


class NotAStore(StoreError):
    """The file in the place of the index was written by something else."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is not the index of a Sealmail block store")
        self.path = path


class NewerSchema(StoreError):
    """A later version wrote the store: upgrade this program before you open it."""

    def __init__(self, path: Path, found: int, known: int) -> None:
        super().__init__(
            f"{path} has schema {found}, this version knows {known}; upgrade Sealmail"
        )
        self.path = path
        self.found = found
        self.known = known


class StoreClosed(StoreError):
    """The store was closed; open it again to use it."""

    def __init__(self) -> None:
        super().__init__("the block store is closed")


class NoRoom(StoreError):
    """The disk is full; nothing was stored, and what was stored before is safe."""

    def __init__(self, directory: Path) -> None:
        super().__init__(f"no room left on the disk of {directory}; nothing was stored")
        self.directory = directory


class ShareFull(StoreError):
    """A share of the store is used up; the sender keeps the block and tries again later."""

    def __init__(self, share: str, limit: int) -> None:
        super().__init__(f"the share of {share} is used up ({limit} bytes); nothing was stored")
        self.share = share
        self.limit = limit


class NotEmpty(StoreError):
    """A backup or a restored store needs a new directory: name one that is not there."""

    def __init__(self, directory: Path) -> None:
        super().__init__(f"{directory} is not empty; name a new directory")
        self.directory = directory


class BadBackup(StoreError):
    """A backup is not whole; take another one, or restore an earlier one."""

    def __init__(self, directory: Path, reason: str) -> None:
        super().__init__(f"the backup in {directory} is not whole: {reason}")
        self.directory = directory


class StoreFailed(StoreError):
    """The disk failed under the store, which takes no more writes until it is opened again."""

    def __init__(self, directory: Path, cause: BaseException) -> None:
        super().__init__(f"the disk of {directory} failed ({cause}); check it, then restart")
        self.directory = directory


class DataGone(StoreError):
    """The bytes of a data block are not there: it was removed since its entry was read."""

    def __init__(self, key: BlockKey) -> None:
        super().__init__(f"the data of block {key} is gone")
        self.key = key


class DamagedData(StoreError):
    """A data file has another size than its entry says; it must not be served."""

    def __init__(self, key: BlockKey, expected: int, found: int) -> None:
        super().__init__(f"the data of block {key} has {found} bytes, not {expected}")
        self.key = key
        self.expected = expected
        self.found = found
