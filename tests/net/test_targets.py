"""Names that are looked up before they are dialled."""

import asyncio
import socket
import threading
from typing import Any

import pytest

from sealmail_net.errors import Unreachable
from sealmail_net.targets import resolve
from sealmail_protocol.addresses import ServerAddress


def test_name_servers_that_say_nothing_hold_up_no_other_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who names many such hosts must not stop what else is done in threads, as taking blocks."""
    let_go = threading.Event()

    def silent(*_: Any, **__: Any) -> list[Any]:
        let_go.wait(30)
        raise OSError("no answer")

    async def scenario() -> None:
        looking = [
            asyncio.create_task(
                resolve(
                    ServerAddress(f"{number}.silent.example", 8081),
                    allow_private=False,
                    deadline=30.0,
                )
            )
            for number in range(64)
        ]
        try:
            await asyncio.sleep(0.1)
            async with asyncio.timeout(5):
                assert await asyncio.to_thread(lambda: "served") == "served"
        finally:
            let_go.set()
            ends = await asyncio.gather(*looking, return_exceptions=True)
        assert {type(each) for each in ends} == {Unreachable}

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    asyncio.run(scenario())
