"""A group of servers: one that hangs costs a head start, one that refuses costs nothing."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from tests.net.conftest import Identity
from tests.net.small_server import LOOPBACK, ScriptedServer, SmallServer, serving

from sealmail_net.dialing import dial
from sealmail_net.errors import NoServerReached, Unreachable
from sealmail_net.groups import first_of_group
from sealmail_net.pins import MemoryPins
from sealmail_net.remote_server import RemoteServer
from sealmail_protocol.addresses import ServerAddress

A, B, C = (ServerAddress("127.0.0.1", port) for port in (1, 2, 3))
SHORT = 0.05


@dataclass(eq=False)
class Call:
    """A connection that came about, as far as a group is concerned."""

    address: ServerAddress
    ended: bool = False

    async def hang_up(self) -> None:
        """Note that nobody wanted it."""
        self.ended = True


@dataclass
class Group:
    """Attempts that come to what the test says, and what was done with them."""

    fates: dict[ServerAddress, Callable[[], Awaitable[None]]]
    begun: list[ServerAddress] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    cancelled: list[ServerAddress] = field(default_factory=list)

    async def attempt(self, address: ServerAddress) -> Call:
        """Meet the fate of this server."""
        self.begun.append(address)
        try:
            await self.fates[address]()
        except asyncio.CancelledError:
            self.cancelled.append(address)
            raise
        self.calls.append(Call(address))
        return self.calls[-1]


async def answers() -> None:
    """Serve at once."""


async def hangs() -> None:
    """Never say a word."""
    await asyncio.Event().wait()


async def refuses() -> None:
    """Let nobody in."""
    raise Unreachable(A, "refused")


def test_one_that_refuses_costs_no_time() -> None:
    """The next is asked at once, and nobody beyond the one that answers."""

    async def scene() -> None:
        group = Group({A: refuses, B: answers, C: answers})
        begin = time.monotonic()
        call = await first_of_group((A, B, C), group.attempt, head_start=10.0)
        assert (call.address, call.ended) == (B, False)
        assert time.monotonic() - begin < 5.0
        assert group.begun == [A, B]

    asyncio.run(scene())


def test_one_that_hangs_costs_its_head_start() -> None:
    """Then the next is asked beside it, and it is given up when that one answers."""

    async def scene() -> None:
        group = Group({A: hangs, B: answers})
        call = await first_of_group((A, B), group.attempt, head_start=SHORT)
        assert call.address == B
        assert group.cancelled == [A]

    asyncio.run(scene())


def test_one_that_is_slow_may_still_be_the_first() -> None:
    """Its start is not taken away when the next one begins."""

    async def slow() -> None:
        await asyncio.sleep(3 * SHORT)

    async def scene() -> None:
        group = Group({A: slow, B: hangs})
        call = await first_of_group((A, B), group.attempt, head_start=SHORT)
        assert call.address == A
        assert group.cancelled == [B]

    asyncio.run(scene())


def test_of_two_that_answer_together_one_is_hung_up() -> None:
    """No connection is left open that nobody knows of."""

    async def scene() -> None:
        both = asyncio.Event()
        group = Group({A: lambda: _wait(both), B: lambda: _wait(both)})
        asyncio.get_running_loop().call_later(3 * SHORT, both.set)
        call = await first_of_group((A, B), group.attempt, head_start=SHORT)
        assert not call.ended
        assert all(other.ended for other in group.calls if other is not call)

    asyncio.run(scene())


def test_a_group_that_is_given_up_leaves_nothing_behind() -> None:
    """Who cancels the whole cancels every attempt."""

    async def scene() -> None:
        group = Group({A: hangs, B: hangs})
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(4 * SHORT):
                await first_of_group((A, B), group.attempt, head_start=SHORT)
        assert set(group.cancelled) == {A, B}

    asyncio.run(scene())


@pytest.mark.parametrize("order", [(), (A,), (A, B)])
def test_every_reason_is_told_when_nobody_answers(order: tuple[ServerAddress, ...]) -> None:
    """One for each server."""
    group = Group({A: refuses, B: refuses})
    with pytest.raises(NoServerReached) as caught:
        asyncio.run(first_of_group(order, group.attempt, head_start=SHORT))
    assert len(caught.value.reasons) == len(order)


def test_a_fault_that_is_not_of_the_network_is_not_passed_over() -> None:
    """A program error ends the whole, and the other attempts with it."""

    async def broken() -> None:
        raise KeyError("a fault")

    async def scene() -> None:
        group = Group({A: hangs, B: broken})
        with pytest.raises(KeyError):
            await first_of_group((A, B), group.attempt, head_start=SHORT)
        assert group.cancelled == [A]

    asyncio.run(scene())


def test_a_real_server_is_reached_beside_one_that_accepts_and_hangs(identity: Identity) -> None:
    """Long before the deadline of the one that hangs."""

    async def scene() -> None:
        mute = ScriptedServer()
        async with (
            mute.serving() as hanging,
            serving(SmallServer(identity.context())) as (ready, _),
        ):

            async def attempt(address: ServerAddress) -> RemoteServer:
                return await dial(address, LOOPBACK, MemoryPins(), strict_pin=True)

            begin = time.monotonic()
            async with await first_of_group((hanging, ready), attempt, head_start=SHORT) as remote:
                assert remote.address == ready
            assert time.monotonic() - begin < LOOPBACK.answer_deadline

    asyncio.run(scene())


async def _wait(event: asyncio.Event) -> None:
    await event.wait()
