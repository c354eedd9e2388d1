"""The published proof-of-work samples, each checked and the generated ones minted again."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from sealmail_pow import (
    Difficulty,
    Stamp,
    StampCheck,
    fastest_kernel,
    kernels,
    level,
    solve,
    verify,
)

Vector = dict[str, Any]

VECTORS: list[Vector] = json.loads(
    (Path(__file__).parent.parent / "vectors" / "spec_vectors.json").read_text()
)
# What a search in Python finds in seconds, and any compiled kernel in a tenth of one.
QUICK_BITS = {"python": 36}
QUICK_BITS_IN_C = 40
# The fastest kernel stands for all at the levels above.
FASTEST = fastest_kernel(data_length=0)


def of_kind(kind: str) -> list[Any]:
    """Return the vectors of one kind as test parameters."""
    return [
        pytest.param(vector, id=vector["name"].replace(" ", "_"))
        for vector in VECTORS
        if vector["kind"] == kind
    ]


def is_long(level: int, kernel: str) -> bool:
    """Tell whether a search takes too long for every day."""
    if kernel == FASTEST and kernel != "python":
        return False
    return level > QUICK_BITS.get(kernel, QUICK_BITS_IN_C)


def searches() -> list[Any]:
    """Return each generated vector with each kernel as test parameters."""
    return [
        pytest.param(
            vector,
            kernel,
            id=f"{vector['name'].replace(' ', '_')}-{kernel}",
            marks=[pytest.mark.long] if is_long(vector["level"], kernel) else [],
        )
        for vector in VECTORS
        if vector["kind"] == "pow_generate"
        for kernel in kernels()
    ]


@pytest.mark.parametrize("vector", of_kind("pow"))
def test_a_published_stamp_is_worth_its_bits(vector: Vector) -> None:
    """Bits and verdict of every sample are those listed, whether good or bad."""
    data = bytes.fromhex(vector["input_hex"])
    stamp = Stamp.parse(vector["pow"])
    assert len(stamp.nonces) == vector["nonces"]
    assert level(data, stamp) == vector["bits"]
    assert verify(data, stamp, Difficulty(vector["required_bits"])) is vector["ok"]


@pytest.mark.parametrize(
    ("name", "bits"), [("address_claim_pow", 1), ("key_announcement_pow_CRLF_removed", 0)]
)
def test_stamps_of_an_older_construction_are_refused(name: str, bits: int) -> None:
    """Two samples of the specification do not hold over the bytes that count today."""
    (vector,) = (vector for vector in VECTORS if vector["name"] == name)
    data = bytes.fromhex(vector["input_hex"])
    stamp = Stamp.parse(vector["pow"])
    assert level(data, stamp) == bits
    assert not verify(data, stamp, Difficulty.parse("bd,24,2"))


@pytest.mark.parametrize("vector", of_kind("sha256"))
def test_a_published_digest_is_that_of_nonce_and_data(vector: Vector) -> None:
    """The digests printed in the specification are of the nonce's text before the data."""
    whole = bytes.fromhex(vector["input_hex"])
    assert hashlib.sha256(whole).hexdigest() == vector["expected"]
    nonce, data = whole[:9].decode("ascii"), whole[9:]
    check = StampCheck(Stamp((nonce, "0")))
    check.update(data)
    other = int.from_bytes(hashlib.sha256(b"0" + data).digest(), "big")
    assert check.bits() == 256 - (int(vector["expected"], 16) ^ other).bit_length()


@pytest.mark.parametrize(("vector", "kernel"), searches())
def test_the_deterministic_search_finds_the_same_stamp(vector: Vector, kernel: str) -> None:
    """Counting from zero gives the listed stamp after the listed number of hashes."""
    data = bytes.fromhex(vector["input_hex"])
    difficulty = Difficulty(vector["level"], vector["nmatches"])
    solution = solve(data, difficulty, deterministic=True, kernel=kernel)
    assert str(solution.stamp) == vector["expected"]
    assert solution.hashes == vector["hashes"]


@pytest.mark.parametrize("vector", of_kind("pow_generate"))
def test_a_generated_stamp_is_worth_its_bits(vector: Vector) -> None:
    """What the original generated, the verifier accepts at its level and weighs alike."""
    data = bytes.fromhex(vector["input_hex"])
    stamp = Stamp.parse(vector["expected"])
    assert level(data, stamp) == vector["bits"]
    assert verify(data, stamp, Difficulty(vector["level"], vector["nmatches"]))


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(kernel, marks=[pytest.mark.long] if is_long(48, kernel) else [])
        for kernel in kernels()
    ],
)
def test_the_specification_sample_is_minted_again(kernel: str) -> None:
    """The level 48 sample of the specification comes out of the deterministic search."""
    data = b"This is a sample string"
    solution = solve(data, Difficulty(48), deterministic=True, kernel=kernel)
    assert str(solution.stamp) == "bd,00022ab21,0003b3307"
