"""What a key-announcement says of its key, as far as form tells; no cryptography."""

from datetime import UTC, datetime
from typing import Final

from sealmail_protocol.blocks import KeyAnnouncement
from sealmail_spark.facts import AnnouncedKey, Problem
from sealmail_verify.errors import BadSignature
from sealmail_verify.evidence import read_key_block
from sealmail_verify.key_parts import sealing_parts

# RFC 4880, section 9.1, and the later curves.
_ALGORITHMS: Final = {
    **dict.fromkeys((1, 2, 3), "RSA"),
    16: "Elgamal",
    17: "DSA",
    19: "ECDSA",
    22: "EdDSA",
    27: "Ed25519",
}
# Curves have no number whose size would matter: they are stronger than any that is too small.
_NO_NUMBER: Final = 1 << 16
_ENTANGLED: Final = "entangled"


def announced_key(
    block: KeyAnnouncement, key: bytes, seen: int, problems: list[Problem]
) -> AnnouncedKey:
    """Return what the announcement says; a key that is not the one it stands under is told.

    Algorithm and bits are those of its weakest part: of the primary key, which signs, and of what
    mail can be sealed to at ``seen``.
    """
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
    present = datetime.fromtimestamp(seen, UTC)
    sealing = [part for part in sealing_parts(held) if part.is_usable(present)]
    sizes = [(held.bits, held.algorithm), *((part.bits, part.algorithm) for part in sealing)]
    bits, algorithm = min(sizes, key=lambda size: size[0] or _NO_NUMBER)
    found.algorithm = _ALGORITHMS.get(algorithm, f"algorithm {algorithm}")
    found.bits = bits
    found.created = held.created
    return found
