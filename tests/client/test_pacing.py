"""When mail is tried again, how fast it goes, how long a watch rests, and what sizes tell."""

import asyncio
import random
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.client.samples import DATE, header

from sealmail_client.letters import Letter
from sealmail_client.message_zip import zip_chunks
from sealmail_client.padding import LEAST_SIZE, padded_size
from sealmail_client.retrying import WAITS, next_try
from sealmail_client.throttle import Throttle
from sealmail_client.watching import SHORTEST_REST, rest


def test_tries_become_rarer_and_never_come_at_even_times() -> None:
    """The last wait holds for all further tries."""
    dice = random.Random(1)  # noqa: S311 - no secret
    for failed in range(1, 20):
        wait = WAITS[min(failed, len(WAITS)) - 1]
        found = {next_try(failed, DATE, dice) - DATE for _ in range(20)}
        assert len(found) > 1
        assert all(0.75 * wait <= one <= 1.25 * wait for one in found)


def test_a_throttle_lets_so_many_bytes_a_second_pass() -> None:
    """Who comes after a rest gets no arrears."""
    now, slept = 100.0, []

    async def sleep(seconds: float) -> None:
        nonlocal now
        slept.append(seconds)
        now += seconds

    throttle = Throttle(16, clock=lambda: now, sleep=sleep)
    for _ in range(3):
        asyncio.run(throttle.pass_on(8 * 1024))
    now += 60
    asyncio.run(throttle.pass_on(16 * 1024))
    assert slept == pytest.approx([0.5, 0.5, 0.5, 1.0])
    with pytest.raises(ValueError, match="at least"):
        Throttle(7)


def test_a_watch_rests_about_its_interval_and_never_not_at_all() -> None:
    """Rounds do not come at even times either."""
    hour, dice = timedelta(hours=1), random.Random(1)  # noqa: S311 - no secret
    pauses = {rest(hour, (), DATE, dice) for _ in range(20)}
    assert len(pauses) > 1
    assert all(0.75 * hour <= one <= 1.25 * hour for one in pauses)
    assert rest(timedelta(0), (), DATE, dice) == SHORTEST_REST


@pytest.mark.parametrize("size", [1, LEAST_SIZE, LEAST_SIZE + 1, 10**6, 10**9 + 7, 2**30])
def test_padding_adds_an_eighth_at_most_and_leaves_few_sizes(size: int) -> None:
    """A padded size is its own padded size."""
    padded = padded_size(size)
    assert size <= padded <= max(LEAST_SIZE, size * 1.125)
    assert padded_size(padded) == padded


@pytest.mark.parametrize("length", [0, 1, 5000, 9000, 70_000])
def test_a_padded_letter_is_exactly_as_long_as_the_padding_says(length: int) -> None:
    """Names and the directory of the ZIP are counted too."""
    letter = Letter(header(), "x" * length, padded=True)
    padded = b"".join(zip_chunks(letter))
    plain = b"".join(zip_chunks(replace(letter, padded=False)))
    size = len(padded)
    assert padded_size(size) == size
    assert size >= len(plain)
