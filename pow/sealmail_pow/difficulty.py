"""What a receiver asks of a stamp: how many bits, shared by how many nonces."""

import re
from dataclasses import dataclass
from typing import Self

# The work is measured on SHA-256 digests.
DIGEST_BITS = 256
# A collision needs two; sixteen bound what a verifier can be made to hash.
MIN_NONCES = 2
MAX_NONCES = 16

_WRITTEN = re.compile(r"bd,(0|[1-9][0-9]{0,2}),([1-9][0-9]?)")


@dataclass(frozen=True, slots=True)
class Difficulty:
    """A demand, written ``bd,BITS,NONCES``.

    So many distinct nonces, each put before the stamped bytes, must give SHA-256
    digests that begin with the same so many bits.
    """

    bits: int
    nonces: int = MIN_NONCES

    def __post_init__(self) -> None:
        if not 0 <= self.bits <= DIGEST_BITS:
            raise ValueError(f"a difficulty has 0 to {DIGEST_BITS} bits, not {self.bits}")
        if not MIN_NONCES <= self.nonces <= MAX_NONCES:
            raise ValueError(
                f"a difficulty asks for {MIN_NONCES} to {MAX_NONCES} nonces, not {self.nonces}"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read exactly what ``str`` writes, such as ``bd,24,2``; else a ``ValueError``."""
        written = _WRITTEN.fullmatch(text)
        if written is None:
            raise ValueError("a difficulty is written bd,BITS,NONCES, for example bd,24,2")
        return cls(bits=int(written[1]), nonces=int(written[2]))

    def met_by(self, bits: int, nonces: int) -> bool:
        """Tell whether a stamp of ``nonces`` nonces that share ``bits`` bits is enough."""
        return bits >= self.bits and nonces >= self.nonces

    def __str__(self) -> str:
        return f"bd,{self.bits},{self.nonces}"
