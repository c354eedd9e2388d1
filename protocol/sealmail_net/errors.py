"""What can go wrong between two machines, as a flat list; every message reads as help."""

from collections.abc import Sequence

from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.errors import ProtocolError
from sealmail_protocol.keys import BlockKey

# A server as we know it, or the peer of a connection that came in.
Peer = ServerAddress | str


class NetworkError(Exception):
    """The base of all errors here: this exchange with this peer has failed."""


class Unreachable(NetworkError):
    """No connection came about; check the address, or try again later."""

    def __init__(self, address: Peer, reason: str) -> None:
        super().__init__(f"{address} cannot be reached: {reason}")
        self.address = address
        self.reason = reason


class NoWay(Unreachable):
    """No way to this server is configured, and trying again will not make one.

    It needs a proxy to Tor or I2P, or is open to direct connections only, which an anonymous
    user makes none of.
    """


class ForbiddenTarget(Unreachable):
    """The name stands for an address inside somebody's own network.

    Set ``allow_private_targets = true`` if servers in your own network are meant.
    """

    def __init__(self, address: Peer, resolved: Sequence[str]) -> None:
        super().__init__(
            address,
            f"it stands for {', '.join(resolved)}, which is no public address; "
            "set allow_private_targets = true if that is meant",
        )
        self.resolved = tuple(resolved)


class Unavailable(NetworkError):
    """The server answers but does not serve now; ``text`` is what it says about itself."""

    def __init__(self, address: Peer, text: str) -> None:
        super().__init__(f"{address} does not serve now: {text!r}; try again later")
        self.address = address
        self.text = text


class NotOffered(NetworkError):
    """The server never does what was asked of it; ``what`` says so. Ask another one."""

    def __init__(self, address: Peer, what: str) -> None:
        super().__init__(f"{address} cannot be asked for this: {what}")
        self.address = address
        self.what = what


class NoTls(NetworkError):
    """The server did not agree to encrypt, or somebody between took its answer away.

    The connection was ended before anything secret was sent.
    """

    def __init__(self, address: Peer, reason: str) -> None:
        super().__init__(f"{address} did not start TLS: {reason}; nothing was sent in clear")
        self.address = address
        self.reason = reason


class TlsFailed(NetworkError):
    """The TLS handshake failed: an older TLS than 1.2, no ephemeral keys, or plaintext."""

    def __init__(self, address: Peer, reason: str) -> None:
        super().__init__(f"the TLS handshake with {address} failed: {reason}")
        self.address = address
        self.reason = reason


class PinChanged(NetworkError):
    """The server shows another key than before; nothing was sent to it.

    Either its operator made a new key, or somebody sits between. Ask the operator, by another
    way than this server, for the new pin; if it is the one shown, accept it, else stay away.
    """

    def __init__(self, address: Peer, old: bytes, new: bytes, way: str = "direct") -> None:
        through = "" if way == "direct" else f" on the way {way}"
        super().__init__(
            f"{address} shows another key than before{through}: pin {new.hex()}, "
            f"until now {old.hex()}. "
            "Nothing was sent. Ask its operator, by another way, whether the new pin is right; "
            "accept it only then"
        )
        self.address = address
        self.old = old
        self.new = new
        self.way = way


class LoginFailed(NetworkError):
    """The server refused our login; another one of its group may know the account."""

    def __init__(self, address: Peer) -> None:
        super().__init__(f"{address} refused the login")
        self.address = address


class Timeout(NetworkError):
    """The peer was too slow; it may be overloaded, try again later."""

    def __init__(self, address: Peer, what: str) -> None:
        super().__init__(f"{address} was too slow: waited in vain for {what}")
        self.address = address
        self.what = what


class ConnectionLost(NetworkError):
    """The connection ended before its work was done; try again."""

    def __init__(self, address: Peer, reason: str) -> None:
        super().__init__(f"the connection to {address} was lost: {reason}")
        self.address = address
        self.reason = reason


class BadAnswer(NetworkError, ProtocolError):
    """The server answered what no server may answer; the connection is of no more use."""

    def __init__(self, address: Peer, reason: str) -> None:
        super().__init__(f"{address} broke the protocol: {reason}")
        self.address = address
        self.reason = reason


class DamagedBlock(NetworkError):
    """The server gave other bytes than those the key stands for; ask another server."""

    def __init__(self, address: Peer, key: BlockKey, reason: str) -> None:
        super().__init__(f"{address} gave a damaged block for {key}: {reason}")
        self.address = address
        self.key = key
        self.reason = reason


class NoServerReached(NetworkError):
    """Every server of the group was tried; ``reasons`` has one error for each."""

    def __init__(self, reasons: Sequence[NetworkError]) -> None:
        super().__init__(
            "no server could be used: " + ("; ".join(map(str, reasons)) or "none named")
        )
        self.reasons = tuple(reasons)
