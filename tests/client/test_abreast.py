"""A few things at a time, in their order, and all or nothing of an error."""

import asyncio

import pytest

from sealmail_client.abreast import WIDTH, abreast


def test_a_few_are_at_work_at_once_and_begin_in_order() -> None:
    """Never more than the width, and each once."""
    begun: list[int] = []
    at_work, most = 0, 0

    async def work(item: int) -> None:
        nonlocal at_work, most
        begun.append(item)
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(0)
        at_work -= 1

    asyncio.run(abreast(range(10), work))
    assert begun == list(range(10))
    assert most == WIDTH


def test_an_error_ends_the_others_and_is_raised() -> None:
    """What has begun is cancelled, and nothing more begins."""
    ended: list[str] = []

    async def work(item: int) -> None:
        if item == 1:
            raise LookupError("one")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    with pytest.raises(LookupError, match="one"):
        asyncio.run(abreast(range(10), work))
    assert ended == ["cancelled"]
