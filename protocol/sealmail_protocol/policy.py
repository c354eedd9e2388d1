"""The two policy tables: what each block type asks for, and who may use which command.

Server, DHT and audits read these tables; a further block type is a further row.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto

from sealmail_pow import Difficulty
from sealmail_protocol.blocks import BlockType
from sealmail_protocol.commands import (
    AddLogin,
    AskQueue,
    AskVerdict,
    Capabilities,
    Command,
    DnsTxt,
    Drop,
    GenLogin,
    GetDhtValue,
    GetEntangled,
    GetProxy,
    GetServer,
    ListDhtValues,
    Login,
    PartnerAccount,
    PartnerDrop,
    PartnerList,
    PartnerPair,
    PartnerQueued,
    PartnerSync,
    PartnerWaiting,
    Ping,
    Quit,
    Replicate,
    RepLogin,
    RmLogin,
    SelfTest,
    Shutdown,
    StartTls,
    StoreDhtValue,
    StoreEntangled,
    StoreProxy,
    StoreServer,
)

KIB = 1024
MIB = 1024 * KIB

# Past these the connection ends at once: nobody sends that much for a good reason.
HARD_TEXT_BODY = 16 * MIB
HARD_DATA = 16 * MIB
# A body whose type is not known yet, and the lines of a data block before its bytes.
UNKNOWN_BODY = 64 * KIB
MAILBOX_SIZE = 16 * MIB
SMALLEST_ANNOUNCEMENT = 250
# A full mailbox on its way to its owner: a separator of 13 bytes stands between entries.
FULL_MAILBOX_ANSWER = MAILBOX_SIZE + MAILBOX_SIZE // 16

MAX_FUTURE = timedelta(hours=24)
MAX_FUTURE_REPLICATED = timedelta(hours=48)


class Poster(Enum):
    """Who may post a block to its server."""

    OWNER = auto()
    ANYONE = auto()


class Reader(Enum):
    """Who is given a block by GET."""

    ANYONE = auto()
    LOGGED_IN = auto()
    RECIPIENT = auto()


class Merge(Enum):
    """What becomes of two blocks under one key (``merges``)."""

    REVOKED_THEN_NEWEST = auto()
    NEWEST_OF_EACH_KEYID = auto()
    SET = auto()
    NEWEST = auto()


@dataclass(frozen=True, slots=True)
class BlockPolicy:
    """One row of the block table.

    ``body_size`` bounds a whole body; where several blocks may stand in one, ``separator`` is
    the line between them.
    """

    size: int
    body_size: int
    dht_size: int
    server_stamp: Difficulty
    dht_stamp: Difficulty
    poster: Poster
    reader: Reader
    max_age: timedelta
    merge: Merge
    separator: str | None = None


BLOCK_POLICY: dict[BlockType, BlockPolicy] = {
    BlockType.KEY_ANNOUNCEMENT: BlockPolicy(
        size=64 * KIB,
        body_size=64 * KIB,
        dht_size=64 * KIB,
        server_stamp=Difficulty(24, 2),
        dht_stamp=Difficulty(24, 2),
        poster=Poster.OWNER,
        reader=Reader.ANYONE,
        max_age=timedelta(days=31),
        merge=Merge.REVOKED_THEN_NEWEST,
    ),
    BlockType.ADDRESS_CLAIM: BlockPolicy(
        size=16 * KIB,
        body_size=1 * MIB,
        dht_size=16 * KIB,
        server_stamp=Difficulty(24, 2),
        dht_stamp=Difficulty(24, 2),
        poster=Poster.OWNER,
        reader=Reader.ANYONE,
        max_age=timedelta(days=10),
        merge=Merge.NEWEST_OF_EACH_KEYID,
        separator="NextClaim",
    ),
    BlockType.MESSAGE_ANNOUNCEMENT: BlockPolicy(
        size=1 * MIB,
        body_size=HARD_TEXT_BODY,
        dht_size=64 * KIB,
        server_stamp=Difficulty(8, 2),
        dht_stamp=Difficulty(20, 2),
        poster=Poster.ANYONE,
        reader=Reader.RECIPIENT,
        max_age=timedelta(days=10),
        merge=Merge.SET,
        separator="NextMessage",
    ),
    BlockType.ACKNOWLEDGMENT: BlockPolicy(
        size=1 * KIB,
        body_size=1 * KIB,
        dht_size=1 * KIB,
        server_stamp=Difficulty(16, 2),
        dht_stamp=Difficulty(20, 2),
        poster=Poster.ANYONE,
        reader=Reader.LOGGED_IN,
        max_age=timedelta(days=10),
        merge=Merge.NEWEST,
    ),
    BlockType.DATA: BlockPolicy(
        size=8 * MIB,
        body_size=UNKNOWN_BODY,
        dht_size=64 * KIB,
        server_stamp=Difficulty(8, 2),
        dht_stamp=Difficulty(20, 2),
        poster=Poster.ANYONE,
        reader=Reader.LOGGED_IN,
        max_age=timedelta(days=10),
        merge=Merge.NEWEST,
    ),
}


class Role(Enum):
    """Who a connection is."""

    BEFORE_TLS = auto()
    ANONYMOUS = auto()
    USER = auto()
    ADMINISTRATOR = auto()
    REPLICATION = auto()


_ALL = frozenset(Role)
_IN_TLS = _ALL - {Role.BEFORE_TLS}
_USER = frozenset({Role.USER})
_PARTNER = frozenset({Role.REPLICATION})
_OPERATOR = frozenset({Role.ADMINISTRATOR})

# Who may use a command; everybody else is answered FAILED, its body consumed.
COMMAND_POLICY: dict[type[Command], frozenset[Role]] = {
    StartTls: _ALL,
    Quit: _ALL,
    Ping: _ALL,
    Capabilities: _ALL,
    Login: frozenset({Role.ANONYMOUS}),
    SelfTest: _IN_TLS,
    DnsTxt: _IN_TLS,
    GetEntangled: _IN_TLS,
    StoreEntangled: _IN_TLS,
    GetDhtValue: _IN_TLS,
    ListDhtValues: _IN_TLS,
    StoreDhtValue: _IN_TLS,
    GetServer: _IN_TLS,
    StoreServer: _IN_TLS,
    StoreProxy: _USER,
    GetProxy: _USER,
    AskQueue: _USER,
    Drop: _USER,
    AskVerdict: _IN_TLS,
    Replicate: _PARTNER,
    RepLogin: _PARTNER,
    PartnerDrop: _PARTNER,
    PartnerAccount: _PARTNER,
    PartnerQueued: _PARTNER,
    PartnerWaiting: _PARTNER,
    PartnerList: _PARTNER,
    PartnerPair: _PARTNER,
    PartnerSync: _PARTNER,
    AddLogin: _OPERATOR,
    RmLogin: _OPERATOR,
    GenLogin: _OPERATOR,
    Shutdown: _OPERATOR,
}

# Commands that strangers may repeat only so often.
RATE_LIMITED: frozenset[type[Command]] = frozenset(
    {
        SelfTest,
        DnsTxt,
        GetEntangled,
        StoreEntangled,
        GetDhtValue,
        ListDhtValues,
        StoreDhtValue,
        AskVerdict,
    }
)
