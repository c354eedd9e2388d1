from collections.abc import Callable, Iterable

from sealmail_pow.check import Buffer
from sealmail_pow.stamp import Stamp

def walk(
    data: Buffer,
    bits: int,
    salt: str,
    seed: int,
    threads: int,
    look: Callable[[int], None] | None,
    kernel: str | None,
) -> tuple[tuple[str, ...], int]: ...
def count(
    data: Buffer,
    bits: int,
    nonces: int,
    expected: float,
    salt: str | None,
    look: Callable[[int], None] | None,
    kernel: str | None,
) -> tuple[tuple[str, ...], int]: ...
def verify_many(
    pairs: Iterable[tuple[Buffer, Stamp]],
    least_bits: int,
    least_nonces: int,
    level: Callable[[Buffer, Stamp], int],
    kernel: str | None,
) -> list[bool]: ...
def kernels() -> list[str]: ...
def fastest(data_length: int) -> str: ...
def steps(
    kernel: str | None, data: Buffer, bits: int, place: int, most: int
) -> tuple[int, ...]: ...

class Weighing:
    def __new__(cls, nonces: tuple[str, ...], /) -> Weighing: ...
    def update(self, chunk: Buffer, /) -> None: ...
    def bits(self) -> int: ...
