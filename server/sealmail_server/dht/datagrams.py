"""Datagrams to values and back: docs/dht.md §2. Pure, strict and bounded.

Requests have a least size, so that what a made-up address is sent, the answer and a PING to
see who is there, is never more than three times what the stranger had to send.
"""

import hashlib
import ipaddress
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

from sealmail_protocol.blocks import BlockType
from sealmail_protocol.keys import KEY_BYTES, BlockKey

# Fits one packet on every path that IPv6 allows, tunnels included.
MAX_DATAGRAM = 1200
MAX_ANSWER = 1100
LEAST_PING = 72
LEAST_REQUEST = 400
RPC_BYTES = 16
TOKEN_BYTES = 8
DIGEST_BYTES = 32
# As many as are nearest to a key.
MAX_CONTACTS = 20
# A value up to this size travels in a datagram, beside its token or in a page of holdings.
SMALL_VALUE = 900

_NETWORK_BYTES = 8
_ANSWER = 0x80
_REQUEST_HEAD = struct.Struct(f"!{_NETWORK_BYTES}sB{RPC_BYTES}s{KEY_BYTES}sH")
_ANSWER_HEAD = struct.Struct(f"!{_NETWORK_BYTES}sB{RPC_BYTES}s32s64s16sH")
_CONTACT = struct.Struct(f"!{KEY_BYTES}s16sH")
_HELD = struct.Struct(f"!B{DIGEST_BYTES}sIH")
_COUNT = struct.Struct("!H")
_SIGNED = b"sealmail dht answer\0"

_TYPES = tuple(BlockType)

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class BadDatagram(ValueError):
    """Not one of our datagrams; it is dropped without an answer."""


class Ask(IntEnum):
    """What can be asked for."""

    PING = 1
    NEAREST = 2
    HOLDINGS = 3
    STORE = 4


class Outcome(IntEnum):
    """What became of a value that was sent by datagram."""

    TAKEN = 1
    REFUSED = 2
    NO_ROOM = 3


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node is: an address and a port, the same for datagrams and for TLS."""

    ip: IpAddress
    port: int

    @classmethod
    def of(cls, host: str, port: int) -> "Place":
        """Read a numeric address; IPv4 inside IPv6 becomes IPv4."""
        ip = ipaddress.ip_address(host.partition("%")[0])
        mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
        return cls(mapped or ip, port)

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if self.ip.version == 6 else f"{self.ip}:{self.port}"

    @property
    def packed(self) -> tuple[bytes, int]:
        """Return address and port as they travel."""
        if self.ip.version == 4:
            return bytes(10) + b"\xff\xff" + self.ip.packed, self.port
        return self.ip.packed, self.port


@dataclass(frozen=True, slots=True)
class Request:
    """A question."""

    ask: Ask
    rpc: bytes
    key: bytes = bytes(KEY_BYTES)
    content: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, with the key that signed it; ``seen`` is where the asker was seen to be."""

    ask: Ask
    rpc: bytes
    public_key: bytes
    seen: Place
    content: bytes = field(repr=False)
    signature: bytes = field(default=bytes(64), repr=False)

    @property
    def node_id(self) -> bytes:
        """Return the id of the node that answered."""
        return node_id_of(self.public_key)


@dataclass(frozen=True, slots=True)
class Peer:
    """A node as others name it: unproven until it has answered from there."""

    id: bytes
    place: Place


@dataclass(frozen=True, slots=True)
class Held:
    """A value that a node says it holds; ``body`` is there if it is small."""

    type: BlockType
    digest: bytes
    size: int
    body: bytes = field(default=b"", repr=False)


def network_id(name: str) -> bytes:
    """Return what every datagram of the network of this name begins with."""
    return hashlib.sha256(name.encode()).digest()[:_NETWORK_BYTES]


def node_id_of(public_key: bytes) -> bytes:
    """Return the id of the node with this public key."""
    return hashlib.sha256(public_key).digest()[:KEY_BYTES]


def encode_request(network: bytes, request: Request) -> bytes:
    """Return the datagram of a question."""
    head = _REQUEST_HEAD.pack(
        network,
        request.ask,
        request.rpc,
        request.key,
        len(request.content),
    )
    datagram = (head + request.content).ljust(_least(request.ask), b"\0")
    if len(datagram) > MAX_DATAGRAM:
        raise ValueError(f"a request of {len(datagram)} bytes")
    return datagram


def is_answer(network: bytes, datagram: bytes) -> bool:
    """Tell an answer from a request; ``BadDatagram`` if it belongs to another network."""
    if len(datagram) > MAX_DATAGRAM or len(datagram) < _REQUEST_HEAD.size:
        raise BadDatagram("not of a size that a datagram has")
    if datagram[:_NETWORK_BYTES] != network:
        raise BadDatagram("of another network")
    return bool(datagram[_NETWORK_BYTES] & _ANSWER)


def decode_request(network: bytes, datagram: bytes) -> Request:
    """Read a question; anything that ``encode_request`` does not write is ``BadDatagram``."""
    if is_answer(network, datagram) or len(datagram) < _REQUEST_HEAD.size:
        raise BadDatagram("no request, or a short one")
    _, ask, rpc, key, size = _REQUEST_HEAD.unpack_from(datagram)
    content = datagram[_REQUEST_HEAD.size : _REQUEST_HEAD.size + size]
    padding = datagram[_REQUEST_HEAD.size + size :]
    if len(content) != size or padding.strip(b"\0"):
        raise BadDatagram("a request that is not well-formed")
    if len(datagram) != max(_least(ask), _REQUEST_HEAD.size + size):
        raise BadDatagram("a request that is not padded to its size")
    try:
        return Request(Ask(ask), rpc, key, content)
    except ValueError:
        raise BadDatagram(f"request {ask} is none") from None


def signed_bytes(network: bytes, answer: Answer) -> bytes:
    """Return what the signature of an answer is over: all of it, and so the asker's nonce."""
    ip, port = answer.seen.packed
    head = _ANSWER_HEAD.pack(
        network, answer.ask | _ANSWER, answer.rpc, answer.public_key, bytes(64), ip, port
    )
    return _SIGNED + head + answer.content


def encode_answer(network: bytes, answer: Answer) -> bytes:
    """Return the datagram of an answer."""
    ip, port = answer.seen.packed
    datagram = (
        _ANSWER_HEAD.pack(
            network,
            answer.ask | _ANSWER,
            answer.rpc,
            answer.public_key,
            answer.signature,
            ip,
            port,
        )
        + answer.content
    )
    if len(datagram) > MAX_ANSWER:
        raise ValueError(f"an answer of {len(datagram)} bytes")
    return datagram


def decode_answer(network: bytes, datagram: bytes) -> Answer:
    """Read an answer; its signature is for the caller to check."""
    if not is_answer(network, datagram) or len(datagram) < _ANSWER_HEAD.size:
        raise BadDatagram("no answer, or a short one")
    _, ask, rpc, public_key, signature, ip, port = _ANSWER_HEAD.unpack_from(datagram)
    content = datagram[_ANSWER_HEAD.size :]
    try:
        return Answer(Ask(ask ^ _ANSWER), rpc, public_key, _place(ip, port), content, signature)
    except ValueError:
        raise BadDatagram(f"answer {ask} is none") from None


def encode_nearest(token: bytes, peers: Iterable[Peer]) -> bytes:
    """Return the content of an answer to NEAREST."""
    return token + b"".join(_CONTACT.pack(peer.id, *peer.place.packed) for peer in peers)


def decode_nearest(content: bytes) -> tuple[bytes, tuple[Peer, ...]]:
    """Read the token and the contacts of an answer to NEAREST."""
    token, rest = content[:TOKEN_BYTES], content[TOKEN_BYTES:]
    if len(token) != TOKEN_BYTES or len(rest) % _CONTACT.size:
        raise BadDatagram("contacts that are none")
    if len(rest) > MAX_CONTACTS * _CONTACT.size:
        raise BadDatagram(f"more than {MAX_CONTACTS} contacts")
    peers = (Peer(key, _place(ip, port)) for key, ip, port in _CONTACT.iter_unpack(rest))
    return token, tuple(peer for peer in peers if peer.place.port)


def encode_holdings(total: int, held: Iterable[Held], room: int) -> bytes:
    """Return a page of holdings: as many as fit into ``room`` bytes, small ones whole."""
    page = bytearray(_COUNT.pack(min(total, 0xFFFF)))
    for each in held:
        body = each.body if len(each.body) <= SMALL_VALUE else b""
        item = _HELD.pack(_TYPES.index(each.type), each.digest, each.size, len(body)) + body
        if len(page) + len(item) > room:
            break
        page += item
    return bytes(page)


def decode_holdings(content: bytes) -> tuple[int, tuple[Held, ...]]:
    """Read how many values a node holds under a key, and a page of them."""
    if len(content) < _COUNT.size:
        raise BadDatagram("a page of holdings without its count")
    (total,) = _COUNT.unpack_from(content)
    held, place = [], _COUNT.size
    while place < len(content):
        if len(content) - place < _HELD.size:
            raise BadDatagram("half a holding")
        kind, digest, size, length = _HELD.unpack_from(content, place)
        place += _HELD.size
        body = content[place : place + length]
        if len(body) != length or kind >= len(_TYPES) or (length and length != size):
            raise BadDatagram("a holding that is none")
        held.append(Held(_TYPES[kind], digest, size, body))
        place += length
    return total, tuple(held)


def store_content(token: bytes, body: bytes) -> bytes:
    """Return the content of a request to STORE a small value."""
    return token + body


def read_store_content(content: bytes) -> tuple[bytes, bytes]:
    """Split the content of a STORE into token and value."""
    if not TOKEN_BYTES < len(content) <= TOKEN_BYTES + SMALL_VALUE:
        raise BadDatagram("a STORE without a value, or with a large one")
    return content[:TOKEN_BYTES], content[TOKEN_BYTES:]


def answer_room() -> int:
    """Return how many bytes of content an answer has room for."""
    return MAX_ANSWER - _ANSWER_HEAD.size


def key_of(request: Request) -> BlockKey:
    """Return the key that a request is about."""
    return BlockKey(request.key)


def _least(ask: int) -> int:
    return LEAST_PING if ask == Ask.PING else LEAST_REQUEST


def _place(ip: bytes, port: int) -> Place:
    return Place.of(str(ipaddress.IPv6Address(ip)), port)
