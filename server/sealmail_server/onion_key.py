"""The key of an onion service: made here, kept in a file of ours, so that a backup has it."""

import base64
import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from sealmail_server.setting_rules import BadConfig
from sealmail_store import make_directory_durably, write_durably

_SEED_BYTES = 32
_CHECKSUM_TAG = b".onion checksum"
_VERSION = b"\x03"


class BadOnionKey(BadConfig):
    """The file holds no onion key; the message names it and what to do."""


@dataclass(frozen=True, slots=True)
class OnionKey:
    """An Ed25519 key by its seed; the host name is the public half."""

    seed: bytes = field(repr=False)

    @property
    def host(self) -> str:
        """Return the host name: key, checksum and version in base32."""
        key = Ed25519PrivateKey.from_private_bytes(self.seed).public_key()
        public = key.public_bytes(Encoding.Raw, PublicFormat.Raw)
        checksum = hashlib.sha3_256(_CHECKSUM_TAG + public + _VERSION).digest()[:2]
        return f"{base64.b32encode(public + checksum + _VERSION).decode().lower()}.onion"

    @property
    def for_tor(self) -> str:
        """Return the key as ADD_ONION takes it: the expanded secret key in base64."""
        expanded = bytearray(hashlib.sha512(self.seed).digest())
        expanded[0] &= 248
        expanded[31] = expanded[31] & 63 | 64
        return f"ED25519-V3:{base64.b64encode(expanded).decode()}"


def load_onion_key(path: Path) -> OnionKey:
    """Read the key; one is made, durable and for us alone, where there is none yet."""
    try:
        seed = path.read_bytes()
    except FileNotFoundError:
        seed = Ed25519PrivateKey.generate().private_bytes_raw()
        make_directory_durably(path.parent)
        write_durably(path, seed)
    if len(seed) != _SEED_BYTES:
        raise BadOnionKey(f"{path} is no onion key of {_SEED_BYTES} bytes: restore a backup of it")
    return OnionKey(seed)
