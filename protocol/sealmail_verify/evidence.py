"""What is checked before any engine is asked, the same for both.

A text that fails here has cost no cryptography and no program start.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from sealmail_protocol.keys import KeyId
from sealmail_verify.clear_text import dearmor_key_block, parse_clear_signed
from sealmail_verify.errors import BadSignature
from sealmail_verify.packets import KeyBlock, TextSignature, parse_key_block, parse_text_signature

# pysequoia forgives clocks this much and no more; gpg would forgive any.
CLOCK_TOLERANCE = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class Evidence:
    """A text, its one signature and the one key that must have made it; not yet verified.

    ``signed`` is the canonical text, and the signature is detached from it.
    """

    signed: bytes
    signature: TextSignature
    key: KeyBlock


# An announcement is read for what its key says, and once more to verify it.
@lru_cache(maxsize=8)
def read_key_block(armored: bytes) -> KeyBlock:
    """Read one armored public key; see ``parse_key_block`` for what is refused."""
    return parse_key_block(dearmor_key_block(armored))


def gather(text: bytes, key: KeyBlock, expected: KeyId) -> Evidence:
    """Take a text apart, and refuse what needs no cryptography to be refused."""
    if key.key_id != expected:
        raise BadSignature(f"the key block holds the key {key.key_id}, not {expected}")
    clear = parse_clear_signed(text)
    signature = parse_text_signature(clear.signature)
    # gpg hashes by these lines alone: without the right one, others could not verify the text.
    if signature.hash_algorithm not in clear.hash_names:
        raise BadSignature(f"no Hash: line names {signature.hash_algorithm}")
    if signature.signed_at > datetime.now(UTC) + CLOCK_TOLERANCE:
        raise BadSignature("the signature is dated in the future")
    return Evidence(clear.signed, signature, key)
