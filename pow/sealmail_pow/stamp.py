"""The proof itself: the nonces that somebody searched for."""

import re
from dataclasses import dataclass
from typing import Self

from sealmail_pow.difficulty import MAX_NONCES, MIN_NONCES

MAX_NONCE_LENGTH = 64

_SCHEME = "bd"
_NONCE = re.compile(rf"[0-9a-f]{{1,{MAX_NONCE_LENGTH}}}")
_MAX_LENGTH = len(_SCHEME) + MAX_NONCES * (1 + MAX_NONCE_LENGTH)


@dataclass(frozen=True, slots=True)
class Stamp:
    """Distinct nonces of lower-case hex digits, written ``bd,NONCE,NONCE[,NONCE...]``.

    A stamp says nothing by itself; ``level`` tells what it is worth over given bytes.
    """

    nonces: tuple[str, ...]

    def __post_init__(self) -> None:
        if not MIN_NONCES <= len(self.nonces) <= MAX_NONCES:
            raise ValueError(
                f"a stamp has {MIN_NONCES} to {MAX_NONCES} nonces, not {len(self.nonces)}"
            )
        for place, nonce in enumerate(self.nonces, start=1):
            if not _NONCE.fullmatch(nonce):
                raise ValueError(
                    f"nonce {place} of the stamp is not 1 to {MAX_NONCE_LENGTH}"
                    " lower-case hex digits"
                )
        if len(set(self.nonces)) != len(self.nonces):
            raise ValueError("the stamp repeats a nonce")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read exactly what ``str`` writes, such as ``bd,00000275e,000002960``.

        Anything else is a ``ValueError``.
        """
        if len(text) > _MAX_LENGTH:
            raise ValueError(f"a stamp has at most {_MAX_LENGTH} characters, not {len(text)}")
        scheme, *nonces = text.split(",")
        if scheme != _SCHEME:
            raise ValueError("a stamp is written bd,NONCE,NONCE, for example bd,2a,3b")
        return cls(tuple(nonces))

    def __str__(self) -> str:
        return ",".join((_SCHEME, *self.nonces))
