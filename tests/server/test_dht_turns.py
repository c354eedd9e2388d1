"""Whose turn it is to look something up in the DHT."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from sealmail_server.dht.turns import OURS, Asker, Turns

ANN = Asker("user ann")
STRANGERS = [Asker(str(number), stranger=True) for number in range(9)]


async def goes(turns: Turns, asker: Asker, stack: AsyncExitStack) -> bool:
    """Tell whether somebody has a turn now; it is his until the end."""
    try:
        async with asyncio.timeout(0.05):
            await stack.enter_async_context(turns.turn(asker))
    except TimeoutError:
        return False
    return True


def test_strangers_leave_turns_for_users_and_one_source_leaves_some_for_others() -> None:
    """Of five turns, three are strangers', and two at most of one source."""

    async def scenario() -> None:
        turns = Turns(5, of_strangers=3, of_one=2)
        async with AsyncExitStack() as users:
            async with AsyncExitStack() as stack:
                first, second, third = STRANGERS[:3]
                order = (first, first, first, second, third, ANN, ANN, OURS)
                found = [await goes(turns, asker, stack) for asker in order]
                assert found == [True, True, False, True, False, True, True, False]
            assert [await goes(turns, OURS, users) for _ in range(3)] == [True, True, False]

    asyncio.run(scenario())


@pytest.mark.parametrize("asker", [ANN, STRANGERS[0]])
def test_who_waits_has_his_turn_when_one_ends(asker: Asker) -> None:
    """And whoever gives up waiting leaves nothing behind."""

    async def scenario() -> None:
        turns = Turns(1, of_strangers=1, of_one=1)
        async with AsyncExitStack() as stack:
            async with turns.turn(OURS):
                assert not await goes(turns, asker, stack)
                waiting = asyncio.create_task(goes(turns, asker, stack))
                await asyncio.sleep(0)
            assert await waiting

    asyncio.run(scenario())
