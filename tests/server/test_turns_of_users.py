"""Which user's mail goes next while more wait for workers than there are."""

import asyncio
from pathlib import Path
from random import SystemRandom

from tests.server.users import now
from tests.store.samples import announcement, in_store

from sealmail_net.errors import Unreachable
from sealmail_net.remote_server import RemoteServer
from sealmail_protocol.addresses import ServerAddress, Transport
from sealmail_protocol.blocks import BlockType
from sealmail_protocol.replies import Verdict
from sealmail_server.clock_guard import Believed
from sealmail_server.outgoing.bags import Waiting
from sealmail_server.outgoing.postman import Postman
from sealmail_server.outgoing.rows import new_row, new_ticket
from sealmail_server.outgoing.targets import Entangled, Local, TargetRules
from sealmail_server.outgoing.telling import Teller
from sealmail_server.partnership import Partnership
from sealmail_store import PROXIED, BlockStore, StoredEntry, WriteView

USERS, TARGETS = 60, 12


class DeadEnds:
    """A way out on which nobody answers; ``asked`` is who was dialled, in order."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def connect(self, server: ServerAddress) -> RemoteServer:
        """Take a moment, and fail."""
        self.asked.append(server.host)
        await asyncio.sleep(0.01)
        raise Unreachable(server, "nobody is there")

    async def gives_verdicts(self, remote: RemoteServer) -> bool:
        """Never be asked: nobody is reached."""
        raise NotImplementedError

    def is_our_own(self, remote: RemoteServer) -> bool:
        """Never be asked: nobody is reached."""
        raise NotImplementedError


async def admit(row: Waiting, entry: StoredEntry, here: Local | Entangled) -> Verdict:
    """Never be asked: nothing is for this server."""
    raise NotImplementedError


def test_who_had_no_worker_yet_comes_before_who_had_one(tmp_path: Path) -> None:
    """Also the last of many users, all of whose servers are unknown."""
    moment = now()
    block = announcement(1)

    def put(view: WriteView) -> None:
        for user in range(USERS):
            for target in range(TARGETS):
                row = new_row(
                    ticket=new_ticket(),
                    digest=block.digest,
                    key=block.key,
                    type=BlockType.MESSAGE_ANNOUNCEMENT,
                    date=moment,
                    entry=number_of(view, block),
                    owner=f"{user:040}",
                    target=Transport((ServerAddress(f"t{target}.u{user}.example", 8081),)),
                    line=1,
                    queued=moment,
                    start=moment,
                )
                view.queue.put(row)

    async def scenario(store: BlockStore) -> None:
        await store.write(put)
        dead_ends, partnership = DeadEnds(), Partnership()
        postman = Postman(
            store,
            Teller(store, partnership, now),
            TargetRules(set),
            dead_ends,
            admit,
            now,
            Believed(),
            SystemRandom(),
            partnership,
        )
        work = asyncio.create_task(postman.run())
        async with asyncio.timeout(20):
            while len(dead_ends.asked) < USERS * TARGETS:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        work.cancel()
        await asyncio.wait((work,))
        users = [host.partition(".")[2] for host in dead_ends.asked]
        assert len(set(users[: len(users) // 2])) == USERS

    in_store(tmp_path, scenario)


def number_of(view: WriteView, block: StoredEntry) -> int:
    """Hold a block, once, and return its number."""
    held = StoredEntry(PROXIED, block.key, block.digest, now(), block.header, block.digest, 0)
    return view.hold(held)
