"""Command lines to commands, by the table at the end; ``str`` of a command is the way back."""

import re
from collections.abc import Callable
from datetime import datetime

from sealmail_protocol.addresses import ServerAddress, Transport
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
from sealmail_protocol.dates import parse_date
from sealmail_protocol.keys import BlockKey

# Accounts made by one GENLOGIN: enough for an office, and one transaction.
MAX_GENERATED = 1000
MAX_PING_TEXT = 200

_NAME = re.compile(r"[0-9A-Za-z]{8,40}")
_REPLICATED_NAME = re.compile(r"[0-9A-Za-z]{4,40}")
_HOST = re.compile(r"[0-9A-Za-z_.-]{1,253}")
_DIGEST = re.compile(r"[0-9A-Fa-f]{64}")
_STATE = re.compile(r"[a-z]{1,16}")
_SECRET = re.compile(r"[0-9A-Za-z]{16,64}")


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


def _poster(text: str) -> str | None:
    name = _matching(_REPLICATED_NAME, text, "a userid of 4 to 40 letters and digits")
    return None if name.lower() == "none" else name


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


def _get_dht_value(words: list[str]) -> GetDhtValue:
    key, rest = _keyed(words)
    _count(rest, 1)
    return GetDhtValue(key, _digest(rest[0]))


def _list_dht_values(words: list[str]) -> ListDhtValues:
    key, rest = _keyed(words)
    _count(rest, 0)
    return ListDhtValues(key)


def _store_dht_value(words: list[str]) -> StoreDhtValue:
    key, rest = _keyed(words)
    _count(rest, 0)
    return StoreDhtValue(key)


def _store_proxy(words: list[str]) -> StoreProxy:
    key, rest = _keyed(words)
    return StoreProxy(key, _dated(rest, "AFTER"))


def _replicate(words: list[str]) -> Replicate:
    key, rest = _keyed(words)
    _count(rest, 1)
    return Replicate(key, _poster(rest[0]))


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
    _count(rest, 3)
    return PartnerDrop(key, _digest(rest[0]), _digest(rest[1]), parse_date(rest[2]))


def _partner_account(words: list[str]) -> PartnerAccount:
    _count(words, 3)
    state = _matching(_STATE, words[2], "an account state")
    return PartnerAccount(_digest(words[0]), _userid(words[1]), state)


def _partner_queued(words: list[str]) -> PartnerQueued:
    key, rest = _keyed(words)
    _count(rest, 0)
    return PartnerQueued(key)


def _partner_waiting(words: list[str]) -> PartnerWaiting:
    key, rest = _keyed(words)
    _count(rest, 2)
    return PartnerWaiting(key, _poster(rest[0]), parse_date(rest[1]))


def _partner_list(words: list[str]) -> PartnerList:
    _count(words, 2)
    return PartnerList(BlockType(words[0].lower()), BlockKey.from_hex(words[1]))


def _partner_pair(words: list[str]) -> PartnerPair:
    _count(words, 4)
    secret = _matching(_SECRET, words[0], "a pairing secret")
    address = ServerAddress.parse(words[3])
    return PartnerPair(secret, _digest(words[1]), _auth_key(words[2]), address)


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
    "DHT-VALUE GET": _get_dht_value,
    "DHT-VALUE LIST": _list_dht_values,
    "DHT-VALUE STORE": _store_dht_value,
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
    "PARTNER WAITING": _partner_waiting,
    "PARTNER LIST": _partner_list,
    "PARTNER PAIR": _partner_pair,
    "PARTNER SYNC": _bare(PartnerSync),
}
