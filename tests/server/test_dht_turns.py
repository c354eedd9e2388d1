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


def test_a_shared_door_has_what_no_other_stranger_wants() -> None:
    """Behind it are many: its part bounds them only while somebody else waits."""

    async def scenario() -> None:
        turns, door = Turns(5, of_strangers=3, of_one=1), Asker("tor", True, shared=True)
        served: list[str] = []

        async def ask(asker: Asker) -> None:
            async with turns.turn(asker):
                served.append(asker.source)

        async with AsyncExitStack() as users, AsyncExitStack() as inside:
            assert [await goes(turns, door, inside) for _ in range(3)] == [True] * 3
            tasks = [asyncio.create_task(ask(asker)) for asker in (door, STRANGERS[0])]
            await asyncio.sleep(0)
            assert await goes(turns, ANN, users)
            assert not served
            await inside.aclose()
            await asyncio.gather(*tasks)
            assert served == ["0", "tor"]

    asyncio.run(scenario())


def test_nobody_who_just_had_a_turn_is_before_those_who_wait() -> None:
    """Not even if he asks again at once."""

    async def scenario() -> None:
        turns, served = Turns(1, of_strangers=1, of_one=1), list[str]()

        async def ask(name: str, times: int) -> None:
            for _ in range(times):
                async with turns.turn(Asker(name)):
                    served.append(name)
                    await asyncio.sleep(0)

        await asyncio.gather(ask("greedy", 3), ask("ann", 1), ask("bob", 1))
        assert served == ["greedy", "ann", "bob", "greedy", "greedy"]

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
