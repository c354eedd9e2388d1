"""Foretelling the work, in hashes and in seconds."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealmail_pow import Difficulty, estimate, hash_rate, kernels
from sealmail_pow.odds import chance, expected_hashes, hashes_for

difficulties = st.builds(Difficulty, st.integers(0, 256), st.integers(2, 16))


@pytest.mark.parametrize(
    ("difficulty", "hashes"),
    [
        pytest.param(Difficulty(0, 3), 3, id="at-least-its-nonces"),
        pytest.param(Difficulty(24), 5133.6, id="24-bits"),
        pytest.param(Difficulty(48), 21_027_090, id="48-bits"),
        pytest.param(Difficulty(24, 3), 106_334, id="three-nonces"),
    ],
)
def test_the_mean_work_is_known(difficulty: Difficulty, hashes: float) -> None:
    """The expected number of hashes follows the formula of the birthday paradox."""
    assert expected_hashes(difficulty) == pytest.approx(hashes, rel=1e-3)


def test_seconds_follow_the_hash_rate() -> None:
    """At a given rate the seconds are hashes divided by it, the 90 % bound 1.71 times the mean."""
    slow = estimate(Difficulty(24), hashes_per_second=1000)
    assert slow.expected_hashes == pytest.approx(5133.6, rel=1e-3)
    assert slow.seconds == pytest.approx(5.1336, rel=1e-3)
    assert slow.seconds_90 == pytest.approx(8.79, rel=1e-3)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_a_rate_without_meaning_is_refused(rate: float) -> None:
    """Nothing is ever done at a rate of zero or less."""
    with pytest.raises(ValueError, match="hash rate"):
        estimate(Difficulty(24), hashes_per_second=rate)


def test_without_a_rate_the_machine_is_timed() -> None:
    """The calibration gives a rate that any machine has."""
    timed = estimate(Difficulty(24))
    assert 1e4 < timed.expected_hashes / timed.seconds < 1e9


def test_the_rate_is_counted_on_the_clock_given() -> None:
    """With a clock that moves a second each look, the rate is the tries of one look."""
    seconds = iter(range(100))
    rate = hash_rate(8 * 1024 * 1024, kernel="python", seconds=3, clock=lambda: next(seconds))
    assert rate == pytest.approx(2 / 3)


@pytest.mark.parametrize("kernel", kernels())
def test_every_kernel_can_be_timed(kernel: str) -> None:
    """Each kernel has a rate of its own, on one thread."""
    assert hash_rate(threads=1, kernel=kernel, seconds=0.01) > 1e4


@pytest.mark.parametrize("nonces", [3, 16])
@pytest.mark.parametrize("kernel", kernels())
def test_more_nonces_are_timed_on_a_table(kernel: str, nonces: int) -> None:
    """Counting has a rate too, whatever the number of nonces."""
    assert hash_rate(nonces=nonces, kernel=kernel, seconds=0.01) > 1e3


def test_the_first_timing_of_a_process_is_no_worse_than_the_second() -> None:
    """The system may give the first table late; that is no part of the rate."""
    twice = (
        "from sealmail_pow import hash_rate as h; print(h(nonces=3, seconds=0.02), h(nonces=3))"
    )
    done = subprocess.run([sys.executable, "-c", twice], capture_output=True, check=True)
    first, second = map(float, done.stdout.split())
    assert first > second / 20


@settings(deadline=None)
@given(difficulties, st.floats(0.01, 0.99))
def test_chance_and_hashes_are_inverse(difficulty: Difficulty, probability: float) -> None:
    """After the hashes named for a probability, the chance is at least about that."""
    hashes = hashes_for(difficulty, probability)
    assert chance(difficulty, int(hashes) + 1) >= probability * (1 - 1e-9)


@settings(deadline=None)
@given(difficulties, st.integers(0, 2**60), st.integers(0, 2**60))
def test_the_chance_never_falls(difficulty: Difficulty, one: int, other: int) -> None:
    """The chance is a probability that grows with the hashes, at any difficulty."""
    fewer, more = sorted((one, other))
    assert 0.0 <= chance(difficulty, fewer) <= chance(difficulty, more) <= 1.0
