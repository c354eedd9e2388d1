"""What a key-announcement says of its key, as far as form tells; no cryptography."""

from typing import Final

from sealmail_protocol.blocks import KeyAnnouncement
from sealmail_spark.facts import AnnouncedKey, Problem
from sealmail_verify.errors import BadSignature
from sealmail_verify.evidence import read_key_block

# RFC 4880, section 9.1, and the later curves.
_ALGORITHMS: Final = {
    **dict.fromkeys((1, 2, 3), "RSA"),
    17: "DSA",
    19: "ECDSA",
    22: "EdDSA",
    27: "Ed25519",
}
_ENTANGLED: Final = "entangled"


def announced_key(block: KeyAnnouncement, key: bytes, problems: list[Problem]) -> AnnouncedKey:
    """Return what the announcement says; a key that is not the one it stands under is told."""
    networks = {str(server.network.value) for server in block.transport.servers} or {_ENTANGLED}
    found = AnnouncedKey(
        user_id=block.user_id,
        price_bits=block.price.bits,
        price_nonces=block.price.nonces,
        networks=tuple(sorted(networks)),
        mailboxes=len(block.mailboxes),
        expires=block.expires,
        algorithm="unknown",
        bits=0,
        created=None,
    )
    try:
        held = read_key_block(block.signed.armored_key)
    except BadSignature as error:
        problems.append(Problem("malformed", error.reason))
        return found
    if held.key_id.raw != key:
        problems.append(Problem("wrong-key", f"belongs under {held.key_id}"))
    found.algorithm = _ALGORITHMS.get(held.algorithm, f"algorithm {held.algorithm}")
    found.bits = held.bits
    found.created = held.created
    return found
