"""The key that makes a node who it is: its id is the hash of its public half."""

from collections.abc import Callable

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from sealmail_server.dht.datagrams import node_id_of
from sealmail_store import BlockStore, WriteView

_SETTING = "dht-node-key"


class NodeKey:
    """Signs what this node answers."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public = private.public_key().public_bytes_raw()
        self.id = node_id_of(self.public)

    @classmethod
    def make(cls) -> "NodeKey":
        """Make a new one."""
        return cls(Ed25519PrivateKey.generate())

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message."""
        return self._private.sign(message)

    def raw(self) -> bytes:
        """Return the secret half."""
        return self._private.private_bytes_raw()


async def remembered_key(store: BlockStore, make: Callable[[], NodeKey] = NodeKey.make) -> NodeKey:
    """Return the key of this node, made at the first start; it is part of a backup."""
    made = make()

    def remember(view: WriteView) -> str:
        known = view.setting(_SETTING)
        if known is None:
            known = made.raw().hex()
            view.put_setting(_SETTING, known)
        return known

    known = await store.write(remember)
    return NodeKey(Ed25519PrivateKey.from_private_bytes(bytes.fromhex(known)))


def is_signed(message: bytes, public: bytes, signature: bytes) -> bool:
    """Tell whether the holder of a public key signed a message."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True
