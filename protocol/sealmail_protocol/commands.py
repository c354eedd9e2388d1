"""Every wire command as a value, with its one spelling. Parsing is by the table at the end."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from sealmail_protocol.addresses import Transport
from sealmail_protocol.blocks import BlockType
from sealmail_protocol.dates import format_date, parse_date
from sealmail_protocol.keys import BlockKey

# Accounts made by one GENLOGIN: enough for an office, and one transaction.
MAX_GENERATED = 1000
MAX_PING_TEXT = 200

ADMINISTRATOR = "administrator"
REPLICATION = "replication"

_NAME = re.compile(r"[0-9A-Za-z]{8,40}")
_REPLICATED_NAME = re.compile(r"[0-9A-Za-z]{4,40}")
_HOST = re.compile(r"[0-9A-Za-z_.-]{1,253}")
_DIGEST = re.compile(r"[0-9A-Fa-f]{64}")
_STATE = re.compile(r"[a-z]{1,16}")
_SECRET = re.compile(r"[0-9A-Za-z]{16,64}")


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
    """``PARTNER DROP mailbox-key digest date``: the tombstone of a dropped entry."""

    key: BlockKey
    digest: bytes
    date: datetime

    def __str__(self) -> str:
        return f"PARTNER DROP {self.key} {self.digest.hex()} {format_date(self.date)}"


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
class PartnerList:
    """``PARTNER LIST type from-key``: key and digest lines from that key on."""

    type: BlockType
    start: BlockKey

    def __str__(self) -> str:
        return f"PARTNER LIST {self.type} {self.start}"


@dataclass(frozen=True, slots=True)
class PartnerPair:
    """``PARTNER PAIR secret pin authkey``: the second half of a pairing."""

    secret: str = field(repr=False)
    pin: bytes
    auth_key: str = field(repr=False)

    def __str__(self) -> str:
        return f"PARTNER PAIR {self.secret} {self.pin.hex()} {self.auth_key}"


PlainCommand = (
    StartTls | Quit | Ping | SelfTest | Capabilities | Login | GetServer | GetEntangled | GetProxy
    | DnsTxt | Shutdown | AddLogin | RmLogin | RepLogin | GenLogin | AskVerdict | AskQueue | Drop
    | PartnerDrop | PartnerAccount | PartnerList | PartnerPair
)  # fmt: skip
BodyCommand = StoreServer | StoreEntangled | StoreProxy | Replicate | PartnerQueued
Command = PlainCommand | BodyCommand


def parse_command(line: bytes) -> Command:
    """Read one command line; anything that is none is a ``ValueError`` with the reason."""
    try:
        text = line.decode("ascii")
    except UnicodeDecodeError:
        raise ValueError("not ASCII") from None
    words = text.split(" ")
    for length in (2, 1):
        parse = _PARSERS.get(" ".join(words[:length]).upper())
        if parse is not None and len(words) >= length:
            return parse(words[length:])
    raise ValueError("no such command")


def _with_date(start: str, word: str, moment: datetime | None) -> str:
    return f"{start} {word} {format_date(moment)}" if moment else start


def _bare(make: Callable[[], Command]) -> Callable[[list[str]], Command]:
    def parse(words: list[str]) -> Command:
        _count(words, 0)
        return make()

    return parse


def _count(words: list[str], *allowed: int) -> None:
    if len(words) not in allowed:
        raise ValueError(f"{len(words)} arguments where {' or '.join(map(str, allowed))} belong")


def _matching(pattern: re.Pattern[str], text: str, what: str) -> str:
    if not pattern.fullmatch(text):
        raise ValueError(f"not {what}")
    return text


def _userid(text: str) -> str:
    return _matching(_NAME, text, "a userid of 8 to 40 letters and digits")


def _auth_key(text: str) -> str:
    return _matching(_NAME, text, "an auth key of 8 to 40 letters and digits")


def _digest(text: str) -> bytes:
    return bytes.fromhex(_matching(_DIGEST, text, "64 hex digits"))


def _dated(words: list[str], word: str) -> datetime | None:
    _count(words, 0, 2)
    if not words:
        return None
    if words[0].upper() != word:
        raise ValueError(f"{word} date expected")
    return parse_date(words[1])


def _ping(words: list[str]) -> Ping:
    text = " ".join(words)
    if len(text) > MAX_PING_TEXT or not text.isprintable() or (words and not text.strip()):
        raise ValueError(f"not up to {MAX_PING_TEXT} printable characters")
    return Ping(text)


def _keyed(words: list[str]) -> tuple[BlockKey, list[str]]:
    if not words:
        raise ValueError("a key of 40 hex digits expected")
    return BlockKey.from_hex(words[0]), words[1:]


def _get_server(words: list[str]) -> GetServer:
    key, rest = _keyed(words)
    return GetServer(key, _dated(rest, "SINCE"))


def _get_entangled(words: list[str]) -> GetEntangled:
    key, rest = _keyed(words)
    return GetEntangled(key, _dated(rest, "SINCE"))


def _get_proxy(words: list[str]) -> GetProxy:
    key, rest = _keyed(words)
    _count(rest, 1)
    transport = Transport.parse(rest[0])
    if transport.entangled:
        raise ValueError("GET PROXY needs server=host:port")
    return GetProxy(key, transport)


def _store_server(words: list[str]) -> StoreServer:
    key, rest = _keyed(words)
    _count(rest, 0)
    return StoreServer(key)


def _store_entangled(words: list[str]) -> StoreEntangled:
    key, rest = _keyed(words)
    _count(rest, 0)
    return StoreEntangled(key)


def _store_proxy(words: list[str]) -> StoreProxy:
    key, rest = _keyed(words)
    return StoreProxy(key, _dated(rest, "AFTER"))


def _replicate(words: list[str]) -> Replicate:
    key, rest = _keyed(words)
    _count(rest, 1)
    name = _matching(_REPLICATED_NAME, rest[0], "a userid of 4 to 40 letters and digits")
    return Replicate(key, None if name.lower() == "none" else name)


def _login(words: list[str]) -> Login:
    _count(words, 2)
    return Login(_userid(words[0]), _auth_key(words[1]))


def _dns_txt(words: list[str]) -> DnsTxt:
    _count(words, 1)
    return DnsTxt(_matching(_HOST, words[0], "a domain name"))


def _add_login(words: list[str]) -> AddLogin:
    _count(words, 1, 2)
    return AddLogin(_userid(words[0]) if len(words) == 2 else None, _auth_key(words[-1]))


def _rm_login(words: list[str]) -> RmLogin:
    _count(words, 1)
    return RmLogin(_auth_key(words[0]))


def _rep_login(words: list[str]) -> RepLogin:
    _count(words, 2)
    return RepLogin(_userid(words[0]), _auth_key(words[1]))


def _gen_login(words: list[str]) -> GenLogin:
    _count(words, 1)
    count = int(_matching(re.compile(r"[1-9][0-9]{0,3}"), words[0], "a small number"))
    if count > MAX_GENERATED:
        raise ValueError(f"more than {MAX_GENERATED} accounts at once")
    return GenLogin(count)


def _verdict(words: list[str]) -> AskVerdict:
    _count(words, 1)
    return AskVerdict(_digest(words[0]))


def _queue(words: list[str]) -> AskQueue:
    return AskQueue(_dated(words, "SINCE"))


def _drop(words: list[str]) -> Drop:
    key, rest = _keyed(words)
    _count(rest, 1)
    return Drop(key, _digest(rest[0]))


def _partner_drop(words: list[str]) -> PartnerDrop:
    key, rest = _keyed(words)
    _count(rest, 2)
    return PartnerDrop(key, _digest(rest[0]), parse_date(rest[1]))


def _partner_account(words: list[str]) -> PartnerAccount:
    _count(words, 3)
    state = _matching(_STATE, words[2], "an account state")
    return PartnerAccount(_digest(words[0]), _userid(words[1]), state)


def _partner_queued(words: list[str]) -> PartnerQueued:
    key, rest = _keyed(words)
    _count(rest, 0)
    return PartnerQueued(key)


def _partner_list(words: list[str]) -> PartnerList:
    _count(words, 2)
    return PartnerList(BlockType(words[0].lower()), BlockKey.from_hex(words[1]))


def _partner_pair(words: list[str]) -> PartnerPair:
    _count(words, 3)
    secret = _matching(_SECRET, words[0], "a pairing secret")
    return PartnerPair(secret, _digest(words[1]), _auth_key(words[2]))


_PARSERS: dict[str, Callable[[list[str]], Command]] = {
    "STARTTLS": _bare(StartTls),
    "QUIT": _bare(Quit),
    "PING": _ping,
    "SELFTEST": _bare(SelfTest),
    "CAPABILITIES": _bare(Capabilities),
    "LOGIN": _login,
    "GET SERVER": _get_server,
    "GET ENTANGLED": _get_entangled,
    "GET PROXY": _get_proxy,
    "STORE SERVER": _store_server,
    "STORE ENTANGLED": _store_entangled,
    "STORE PROXY": _store_proxy,
    "REPLICATE": _replicate,
    "DNS TXT": _dns_txt,
    "SHUTDOWN": _bare(Shutdown),
    "ADDLOGIN": _add_login,
    "RMLOGIN": _rm_login,
    "REPLOGIN": _rep_login,
    "GENLOGIN": _gen_login,
    "VERDICT": _verdict,
    "QUEUE": _queue,
    "DROP": _drop,
    "PARTNER DROP": _partner_drop,
    "PARTNER ACCOUNT": _partner_account,
    "PARTNER QUEUED": _partner_queued,
    "PARTNER LIST": _partner_list,
    "PARTNER PAIR": _partner_pair,
}
