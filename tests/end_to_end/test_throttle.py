"""Not more bytes a second than the user wants, in both directions."""

import asyncio
import os
import time
from pathlib import Path

import pytest
from tests.end_to_end.programs import User, letter_to
from tests.end_to_end.test_large import compose

from sealmail_client.desk import open_desk
from sealmail_client.outbox import Stage
from sealmail_client.profile import Home
from sealmail_client.receiving import Receiver
from sealmail_client.sending import Sender
from sealmail_client.throttle import Throttle

KIB = 256


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the seconds that were slept so far."""
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Let the time pass at once."""
        self.now += seconds
        await asyncio.sleep(0)


@pytest.fixture(scope="module")
def noise(place: Path) -> Path:
    """Return a file that nothing makes smaller."""
    path = place / "noise.bin"
    path.write_bytes(os.urandom(KIB * 1024))
    return path


def test_what_goes_and_what_comes_waits_for_its_turn(alice: User, bob: User, noise: Path) -> None:
    """A mail takes as long as its bytes at 16 KiB a second, and a little for talk."""
    bob.does("fetch")
    number = compose(alice, bob, "Slowly", noise)
    sending, fetching = Clock(), Clock()
    with open_desk(Home(alice.home), alone=True) as desk:
        desk.servers.throttle = Throttle(16, clock=sending, sleep=sending.sleep)
        assert asyncio.run(Sender(desk).advance(number)).at(Stage.SENT)

    with open_desk(Home(bob.home), alone=True) as desk:
        desk.servers.throttle = Throttle(16, clock=fetching, sleep=fetching.sleep)

        async def receive() -> None:
            async with desk.servers.home() as peer:
                assert len((await Receiver(desk).visit(peer)).filed) == 1

        asyncio.run(receive())
    for clock in (sending, fetching):
        assert KIB / 16 < clock.now < 1.2 * KIB / 16


def test_option_and_setting_are_obeyed(alice: User, bob: User, noise: Path) -> None:
    """No command is done sooner than its bytes may have gone."""
    words = (*letter_to([bob], "As wished"), "--attach", str(noise))
    start = time.monotonic()
    alice.does(*words, "--throttle", str(KIB))
    sent = time.monotonic()
    bob.does("identity", "set", "--throttle", str(KIB))
    try:
        begun = time.monotonic()
        bob.does("fetch")
        fetched = time.monotonic()
    finally:
        bob.does("identity", "set", "--throttle", "0")
    assert "As wished" in bob.subjects()
    assert sent - start >= 1
    assert fetched - begun >= 1
