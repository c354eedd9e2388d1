"""Stores blocks until it is killed; prints the number of each once it is answered for.

Arguments: the store's directory and the first number. Even numbers are announcements, odd ones
large data blocks.
"""

import asyncio
import itertools
import os
import sys
from pathlib import Path

from tests.store.samples import announcement, content, put, store_data

from sealmail_store import BlockStore


async def store_until_killed(directory: Path, first: int) -> None:
    """Keep eight writers busy."""
    numbers = itertools.count(first)

    async def write_on(store: BlockStore) -> None:
        for number in numbers:
            if number % 2:
                await store_data(store, content(number))
            else:
                await put(store, announcement(number))
            os.write(sys.stdout.fileno(), f"{number}\n".encode())

    async with BlockStore.open(directory, create=True) as store, asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(write_on(store))


if __name__ == "__main__":
    asyncio.run(store_until_killed(Path(sys.argv[1]), int(sys.argv[2])))
