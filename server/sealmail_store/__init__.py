"""The block store: what a server keeps, durable before it is answered for."""

from sealmail_store.data_files import DataSpool
from sealmail_store.entries import (
    INLINE_LIMIT,
    Account,
    BlockData,
    Count,
    StoredEntry,
    Verdict,
)
from sealmail_store.errors import (
    DamagedData,
    DataGone,
    NewerSchema,
    NoRoom,
    NotAStore,
    StoreClosed,
    StoreError,
    StoreFailed,
    StoreLocked,
    StoreMissing,
)
from sealmail_store.safe_files import make_directory_durably, write_durably
from sealmail_store.store import BlockStore
from sealmail_store.views import ReadView, WriteView

__all__ = [
    "INLINE_LIMIT",
    "Account",
    "BlockData",
    "BlockStore",
    "Count",
    "DamagedData",
    "DataGone",
    "DataSpool",
    "NewerSchema",
    "NoRoom",
    "NotAStore",
    "ReadView",
    "StoreClosed",
    "StoreError",
    "StoreFailed",
    "StoreLocked",
    "StoreMissing",
    "StoredEntry",
    "Verdict",
    "WriteView",
    "make_directory_durably",
    "write_durably",
]
