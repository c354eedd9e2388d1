"""What the doctor says of the proxies that an identity goes out by."""

import asyncio

from tests.net.name_server import free_port
from tests.net.socks_server import SocksServer

from sealmail_client.connecting import DIRECTLY, Connecting
from sealmail_client.doctoring import Finding, examine_proxies
from sealmail_protocol.addresses import ServerAddress


def test_the_doctor_knocks_at_the_proxies() -> None:
    """One that listens is well, one that does not is told with a way out; none is no finding."""

    async def scene() -> None:
        dead = ServerAddress("127.0.0.1", free_port())
        proxy = SocksServer()
        async with proxy.serving() as alive:
            tor, i2p = await examine_proxies(Connecting(tor_proxy=alive, i2p_proxy=dead))
            await asyncio.sleep(0.05)
        assert tor == Finding("tor", True, f"{alive} listens")
        assert (i2p.part, i2p.well) == ("i2p", False)
        assert f"nothing listens at {dead}" in i2p.text
        assert not proxy.asked
        assert await examine_proxies(DIRECTLY) == []

    asyncio.run(scene())
