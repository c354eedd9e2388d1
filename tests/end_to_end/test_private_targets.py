"""What a mail names on a private address is not dialled, unless the user allows such targets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.client.conftest import quick_home
from tests.end_to_end.forging import forged_letter, leave, seal
from tests.end_to_end.programs import Server, User
from tests.net.socks_server import SocksServer

from sealmail_client.connecting import Connecting, DnsUse
from sealmail_client.desk import Desk, open_desk
from sealmail_client.keyring import Keyring
from sealmail_client.message_zip import zip_chunks
from sealmail_client.profile import Home
from sealmail_client.receiving import Arrivals, Receiver
from sealmail_client.sender_keys import sources_for_sender
from sealmail_client.settings import Delivery, Settings
from sealmail_net.errors import NetworkError
from sealmail_protocol.addresses import ServerAddress, Transport


@pytest.fixture(scope="module")
def bob(place: Path, servers: tuple[Server, Server]) -> User:
    """Return a reader for whom nothing of other tests waits."""
    return User.settle(place, "Priya", "priya@b.example", servers[1])


@asynccontextmanager
async def listening(seen: list[str]) -> AsyncIterator[ServerAddress]:
    """Note who comes, and hang up."""

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del reader
        seen.append(str(writer.get_extra_info("peername")))
        writer.close()

    server = await asyncio.start_server(note, "127.0.0.1", 0)
    async with server:
        yield ServerAddress("127.0.0.1", server.sockets[0].getsockname()[1])


def goes_out(desk: Desk, settings: Settings) -> None:
    """Let what is dialled from now on be dialled by these settings, which are not kept."""
    desk.settings = settings
    vars(desk).pop("servers", None)


@pytest.mark.parametrize("allowed", [False, True])
def test_no_acknowledgment_goes_to_a_private_address_that_a_mail_names(
    bob: User, place: Path, tmp_path: Path, *, allowed: bool
) -> None:
    """It stays owed, and says why; the server that listens there sees nobody."""
    seen: list[str] = []

    async def visit(desk: Desk) -> tuple[Arrivals, ServerAddress]:
        async with listening(seen) as there, desk.servers.home() as peer:
            with Keyring(quick_home(place / f"private-{allowed}")) as keyring:
                nina = keyring.create("Nina", f"nina-{allowed}@n.test", None)
                desk.keyring.import_public(keyring.public_key(nina))
                letter = forged_letter(bob, bob, f"Come to me {allowed}")
                head = replace(
                    letter.header,
                    sender_user_id=f"Nina <nina-{allowed}@n.test>",
                    sender=nina,
                    sender_transport=Transport((there,)),
                    unique_id=f"{allowed:040x}",
                )
                packed = tmp_path / "packed"
                packed.write_bytes(b"".join(zip_chunks(replace(letter, header=head))))
                proof = keyring.sign_detached(packed, nina, None)
                sealed = seal(keyring, bob, packed.read_bytes(), proof, tmp_path)
            await asyncio.to_thread(leave, bob, sealed)
            goes_out(
                desk,
                replace(desk.settings, allow_private_targets=allowed, acknowledge=Delivery.DIRECT),
            )
            return await Receiver(desk).visit(peer), there

    with open_desk(Home(bob.home), alone=True) as desk:
        arrivals, there = asyncio.run(visit(desk))
        (number,) = arrivals.filed
        assert desk.folders.one(number).envelope.signature == "valid"
        desk.database.write("UPDATE incoming SET state = 'ended' WHERE mail = ?", number)
    (doubt,) = (one for one in arrivals.doubts if f"mail {number} is not acknowledged" in one)
    assert bool(seen) == allowed
    assert ("allow_private_targets" in doubt) != allowed
    assert str(there) in doubt


@pytest.mark.parametrize("allowed", [False, True])
def test_no_key_is_sought_at_a_private_address_that_a_mail_names(
    bob: User, mallory: User, *, allowed: bool
) -> None:
    """Neither by a proxy, which may stand in the same network; directly it is never."""
    socks, seen = SocksServer(), list[str]()

    async def ask(desk: Desk) -> None:
        async with listening(seen) as there, desk.servers.home() as home, socks.serving() as proxy:
            named = replace(
                forged_letter(mallory, bob, "Ask me").header,
                sender_transport=Transport((there,)),
            )
            # A home server that asks nobody for its users.
            peer = replace(home, capabilities={}, account=False)
            assert sources_for_sender(desk, peer, named) == []
            ways = Connecting(tor_proxy=proxy, exit_nodes=True, dns=DnsUse.OFF)
            settings = replace(desk.settings, allow_private_targets=allowed, connecting=ways)
            goes_out(desk, settings)
            for source in sources_for_sender(desk, peer, named):
                with pytest.raises(NetworkError):
                    await source.by_key_id(mallory.key_id)

    with open_desk(Home(bob.home), alone=True) as desk:
        asyncio.run(ask(desk))
    assert seen == []
    assert bool(socks.asked) == allowed
