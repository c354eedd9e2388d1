"""The block store: what a server keeps, durable before it is answered for."""

from sealmail_store.backup import restore_backup
from sealmail_store.data_files import DataSpool
from sealmail_store.dht_values import DhtListed, DhtRow, DhtValues
from sealmail_store.entries import (
    INLINE_LIMIT,
    Account,
    BlockData,
    Count,
    EntryName,
    MailPlace,
    StoredEntry,
    Terms,
    Tombstone,
    Verdict,
    WaitingEntry,
)
from sealmail_store.errors import (
    BadBackup,
    DamagedData,
    DataGone,
    NewerSchema,
    NoRoom,
    NotAStore,
    NotEmpty,
    ShareFull,
    StoreClosed,
    StoreError,
    StoreFailed,
    StoreLocked,
    StoreMissing,
)
from sealmail_store.queueing import NO_CODE, QueueBook, QueueKind, QueueRow, QueueState, QueueView
from sealmail_store.safe_files import make_directory_durably, write_durably
from sealmail_store.server_keys import ServerKey
from sealmail_store.spaces import (
    ACKNOWLEDGMENTS,
    LOOSE_DATA,
    PROXIED,
    WAITING,
    holder_space,
    mailbox_space,
    queue_space,
    source_space,
    unpaid_space,
)
from sealmail_store.store import BlockStore
from sealmail_store.views import WAITING_PAGE, ReadView
from sealmail_store.write_view import WriteView

__all__ = [
    "ACKNOWLEDGMENTS",
    "INLINE_LIMIT",
    "LOOSE_DATA",
    "NO_CODE",
    "PROXIED",
    "WAITING",
    "WAITING_PAGE",
    "Account",
    "BadBackup",
    "BlockData",
    "BlockStore",
    "Count",
    "DamagedData",
    "DataGone",
    "DataSpool",
    "DhtListed",
    "DhtRow",
    "DhtValues",
    "EntryName",
    "MailPlace",
    "NewerSchema",
    "NoRoom",
    "NotAStore",
    "NotEmpty",
    "QueueBook",
    "QueueKind",
    "QueueRow",
    "QueueState",
    "QueueView",
    "ReadView",
    "ServerKey",
    "ShareFull",
    "StoreClosed",
    "StoreError",
    "StoreFailed",
    "StoreLocked",
    "StoreMissing",
    "StoredEntry",
    "Terms",
    "Tombstone",
    "Verdict",
    "WaitingEntry",
    "WriteView",
    "holder_space",
    "mailbox_space",
    "make_directory_durably",
    "queue_space",
    "restore_backup",
    "source_space",
    "unpaid_space",
    "write_durably",
]
