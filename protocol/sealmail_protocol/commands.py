"""Every wire command as a value, with its one spelling (docs/protocol.md §3)."""

from dataclasses import dataclass, field
from datetime import datetime

from sealmail_protocol.addresses import ServerAddress, Transport
from sealmail_protocol.blocks import BlockType
from sealmail_protocol.dates import format_date
from sealmail_protocol.keys import BlockKey

ADMINISTRATOR = "administrator"
REPLICATION = "replication"


@dataclass(frozen=True, slots=True)
class StartTls:
    """``STARTTLS``: the handshake follows the answer PROCEED."""

    def __str__(self) -> str:
        return "STARTTLS"


@dataclass(frozen=True, slots=True)
class Quit:
    """``QUIT``: answered GOODBYE."""

    def __str__(self) -> str:
        return "QUIT"


@dataclass(frozen=True, slots=True)
class Ping:
    """``PING [text]``: answered PONG and the same text."""

    text: str = ""

    def __str__(self) -> str:
        return f"PING {self.text}" if self.text else "PING"


@dataclass(frozen=True, slots=True)
class SelfTest:
    """``SELFTEST``: the store answers PASS, or what failed."""

    def __str__(self) -> str:
        return "SELFTEST"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """``CAPABILITIES``: which extensions the server has."""

    def __str__(self) -> str:
        return "CAPABILITIES"


@dataclass(frozen=True, slots=True)
class Login:
    """``LOGIN userid authkey``."""

    userid: str
    auth_key: str = field(repr=False)

    def __str__(self) -> str:
        return f"LOGIN {self.userid} {self.auth_key}"


@dataclass(frozen=True, slots=True)
class GetServer:
    """``GET SERVER key [SINCE date]``: a block of the server's own store."""

    key: BlockKey
    since: datetime | None = None

    def __str__(self) -> str:
        return _with_date(f"GET SERVER {self.key}", "SINCE", self.since)


@dataclass(frozen=True, slots=True)
class GetEntangled:
    """``GET ENTANGLED key [SINCE date]``: a block of the DHT."""

    key: BlockKey
    since: datetime | None = None

    def __str__(self) -> str:
        return _with_date(f"GET ENTANGLED {self.key}", "SINCE", self.since)


@dataclass(frozen=True, slots=True)
class GetProxy:
    """``GET PROXY key server=a:1,b:2``: a key or claim fetched by the home server."""

    key: BlockKey
    transport: Transport

    def __str__(self) -> str:
        return f"GET PROXY {self.key} {self.transport}"


@dataclass(frozen=True, slots=True)
class StoreServer:
    """``STORE SERVER key`` and a body."""

    key: BlockKey

    def __str__(self) -> str:
        return f"STORE SERVER {self.key}"


@dataclass(frozen=True, slots=True)
class StoreEntangled:
    """``STORE ENTANGLED key`` and a body."""

    key: BlockKey

    def __str__(self) -> str:
        return f"STORE ENTANGLED {self.key}"


@dataclass(frozen=True, slots=True)
class GetDhtValue:
    """``DHT-VALUE GET key digest``: one value that this node itself keeps for the DHT."""

    key: BlockKey
    digest: bytes

    def __str__(self) -> str:
        return f"DHT-VALUE GET {self.key} {self.digest.hex()}"


@dataclass(frozen=True, slots=True)
class ListDhtValues:
    """``DHT-VALUE LIST key``: which values this node itself keeps for the DHT."""

    key: BlockKey

    def __str__(self) -> str:
        return f"DHT-VALUE LIST {self.key}"


@dataclass(frozen=True, slots=True)
class StoreDhtValue:
    """``DHT-VALUE STORE key`` and a body: one value for this node to keep."""

    key: BlockKey

    def __str__(self) -> str:
        return f"DHT-VALUE STORE {self.key}"


@dataclass(frozen=True, slots=True)
class StoreProxy:
    """``STORE PROXY key [AFTER date]`` and a body that begins with Post-To lines."""

    key: BlockKey
    after: datetime | None = None

    def __str__(self) -> str:
        return _with_date(f"STORE PROXY {self.key}", "AFTER", self.after)


@dataclass(frozen=True, slots=True)
class Replicate:
    """``REPLICATE key userid`` and a body; ``none`` where nobody was logged in."""

    key: BlockKey
    userid: str | None

    def __str__(self) -> str:
        return f"REPLICATE {self.key} {self.userid or 'none'}"


@dataclass(frozen=True, slots=True)
class DnsTxt:
    """``DNS TXT name``."""

    name: str

    def __str__(self) -> str:
        return f"DNS TXT {self.name}"


@dataclass(frozen=True, slots=True)
class Shutdown:
    """``SHUTDOWN``: the server ends; answered GOODBYE."""

    def __str__(self) -> str:
        return "SHUTDOWN"


@dataclass(frozen=True, slots=True)
class AddLogin:
    """``ADDLOGIN [userid] authkey``: without userid the first login binds the key."""

    userid: str | None
    auth_key: str = field(repr=False)

    def __str__(self) -> str:
        return " ".join(filter(None, ("ADDLOGIN", self.userid, self.auth_key)))


@dataclass(frozen=True, slots=True)
class RmLogin:
    """``RMLOGIN authkey``."""

    auth_key: str = field(repr=False)

    def __str__(self) -> str:
        return f"RMLOGIN {self.auth_key}"


@dataclass(frozen=True, slots=True)
class RepLogin:
    """``REPLOGIN userid authkey``: an account change from the partner."""

    userid: str
    auth_key: str = field(repr=False)

    def __str__(self) -> str:
        return f"REPLOGIN {self.userid} {self.auth_key}"


@dataclass(frozen=True, slots=True)
class GenLogin:
    """``GENLOGIN number``: that many accounts with random keys."""

    count: int

    def __str__(self) -> str:
        return f"GENLOGIN {self.count}"


@dataclass(frozen=True, slots=True)
class AskVerdict:
    """``VERDICT digest``: what became of the block with this canonical digest."""

    digest: bytes

    def __str__(self) -> str:
        return f"VERDICT {self.digest.hex()}"


@dataclass(frozen=True, slots=True)
class AskQueue:
    """``QUEUE [SINCE date]``: what became of the blocks this login gave for proxying."""

    since: datetime | None = None

    def __str__(self) -> str:
        return _with_date("QUEUE", "SINCE", self.since)


@dataclass(frozen=True, slots=True)
class Drop:
    """``DROP mailbox-key digest``: the owner removes an entry of a mailbox."""

    key: BlockKey
    digest: bytes

    def __str__(self) -> str:
        return f"DROP {self.key} {self.digest.hex()}"


@dataclass(frozen=True, slots=True)
class PartnerDrop:
    """``PARTNER DROP mailbox-key digest identity date``: a tombstone, and until when it is kept.

    ``identity`` is what all versions of the dropped entry have in common, whatever their stamps.
    """

    key: BlockKey
    digest: bytes
    identity: bytes
    date: datetime

    def __str__(self) -> str:
        names = f"{self.digest.hex()} {self.identity.hex()}"
        return f"PARTNER DROP {self.key} {names} {format_date(self.date)}"


@dataclass(frozen=True, slots=True)
class PartnerAccount:
    """``PARTNER ACCOUNT hash userid state``: an account record, by the hash of its key."""

    key_hash: bytes
    userid: str
    state: str

    def __str__(self) -> str:
        return f"PARTNER ACCOUNT {self.key_hash.hex()} {self.userid} {self.state}"


@dataclass(frozen=True, slots=True)
class PartnerQueued:
    """``PARTNER QUEUED key`` and a body: a proxied block for the mirror of the queue."""

    key: BlockKey

    def __str__(self) -> str:
        return f"PARTNER QUEUED {self.key}"


@dataclass(frozen=True, slots=True)
class PartnerWaiting:
    """``PARTNER WAITING key userid date`` and a body: what waits for an account, price or key.

    ``until`` is when it need not wait any more.
    """

    key: BlockKey
    userid: str | None
    until: datetime

    def __str__(self) -> str:
        return f"PARTNER WAITING {self.key} {self.userid or 'none'} {format_date(self.until)}"


@dataclass(frozen=True, slots=True)
class PartnerList:
    """``PARTNER LIST type from-key``: key and digest lines from that key on."""

    type: BlockType
    start: BlockKey

    def __str__(self) -> str:
        return f"PARTNER LIST {self.type} {self.start}"


@dataclass(frozen=True, slots=True)
class PartnerPair:
    """``PARTNER PAIR secret pin authkey host:port``: the second half of a pairing."""

    secret: str = field(repr=False)
    pin: bytes
    auth_key: str = field(repr=False)
    address: ServerAddress

    def __str__(self) -> str:
        return f"PARTNER PAIR {self.secret} {self.pin.hex()} {self.auth_key} {self.address}"


@dataclass(frozen=True, slots=True)
class PartnerSync:
    """``PARTNER SYNC``: the partner is to look for what we lack, and send it."""

    def __str__(self) -> str:
        return "PARTNER SYNC"


PlainCommand = (
    StartTls | Quit | Ping | SelfTest | Capabilities | Login | GetServer | GetEntangled | GetProxy
    | DnsTxt | Shutdown | AddLogin | RmLogin | RepLogin | GenLogin | AskVerdict | AskQueue | Drop
    | PartnerDrop | PartnerAccount | PartnerList | PartnerPair | PartnerSync
    | GetDhtValue | ListDhtValues
)  # fmt: skip
BodyCommand = (
    StoreServer | StoreEntangled | StoreProxy | Replicate | PartnerQueued | PartnerWaiting
    | StoreDhtValue
)  # fmt: skip
# Whose bodies begin with Post-To lines.
NAMING_TARGETS = (StoreProxy, PartnerQueued)
Command = PlainCommand | BodyCommand


def _with_date(start: str, word: str, moment: datetime | None) -> str:
    return f"{start} {word} {format_date(moment)}" if moment else start
