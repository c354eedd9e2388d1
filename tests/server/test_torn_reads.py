"""Readers see whole blocks while others write them."""

import asyncio
from datetime import timedelta
from pathlib import Path

from tests.server.inside import TurnedClock, connect, make_server
from tests.server.mailing import log_in, running
from tests.server.post_office import ANYBODY, PostOffice, in_post_office, lines_of
from tests.server.users import data_lines, message, now

from sealmail_net.remote_server import RemoteServer
from sealmail_protocol.block_codec import parse_data_header
from sealmail_protocol.blocks import MessageAnnouncement
from sealmail_protocol.bundles import split_bundle
from sealmail_protocol.keys import KeyId, data_key, mailbox_key
from sealmail_protocol.replies import Accepted, Word
from sealmail_server.reading import block_slices

ANN = KeyId(b"a" * 20)


def test_who_reads_by_tls_beside_who_writes_gets_whole_blocks(tmp_path: Path) -> None:
    """The same over connections to a server: every answer has the bytes of its key."""
    data = bytes(range(256)) * 2_000
    key, mailbox = data_key(data), mailbox_key("0", ANN)
    mails = [message(ANN, data=str(number).encode()) for number in range(30)]
    make_server(tmp_path, TurnedClock(now()))

    async def run() -> None:
        async with running(tmp_path) as (server,):
            readers = [await log_in(server, ANN) for _ in range(2)]
            writer, poster = await connect(server), await connect(server)
            writing, counts = True, []

            async def write_data() -> None:
                for seconds in range(1, 8):
                    date = now() + timedelta(seconds=seconds)
                    _, lines = data_lines(data, date)
                    header = parse_data_header(lines)
                    assert await writer.store_data(key, header, [data]) is Word.DONE

            async def read_on(reader: RemoteServer) -> None:
                while writing:
                    got = bytearray()
                    # Which raises where these are not the bytes of the key.
                    if await reader.get_data(key, got.extend) is not None:
                        assert got == data
                    lines = await reader.get(mailbox)
                    found = [tuple(each) for each in split_bundle(lines)] if lines else []
                    assert set(found) <= {lines_of(mail) for mail in mails}
                    counts.append(len(found))

            reading = [asyncio.create_task(read_on(each)) for each in readers]
            await asyncio.gather(write_data(), *(post(poster, mail) for mail in mails))
            writing = False
            await asyncio.gather(*reading)
            assert len(counts) > 10
            found = split_bundle(await readers[0].get(mailbox) or ())
            assert len(list(found)) == len(mails)
            for each in (*readers, writer, poster):
                await each.quit()

    async def post(remote: RemoteServer, mail: MessageAnnouncement) -> None:
        assert await remote.store(mailbox, mail.lines) is Word.DONE

    asyncio.run(run())


def test_a_get_beside_a_store_gives_the_whole_block(tmp_path: Path) -> None:
    """A large block whose header is replaced again and again, and a mailbox that grows."""
    data = bytes(range(256)) * 2_000
    key, mailbox = data_key(data), mailbox_key("0", ANN)

    async def scenario(office: PostOffice) -> None:
        ann = await office.open_account(ANN)
        assert await office.post_data(data) == Accepted()
        sizes: list[int] = []
        writing = True

        async def write_data() -> None:
            for seconds in range(1, 12):
                date = now() + timedelta(seconds=seconds)
                assert await office.post_data(data, date=date) == Accepted()

        async def write_mail() -> None:
            for number in range(60):
                mail = message(ANN, data=str(number).encode())
                verdict = await office.intake.take_text(mailbox, lines_of(mail), ANYBODY)
                assert verdict == Accepted()

        async def read_on() -> None:
            while writing:
                entries = await office.read(key, ann)
                body = b"".join([piece async for piece in block_slices(entries)])
                assert body[len(entries[0].header) :] == data
                mails = await office.read(mailbox, ann)
                if mails:
                    text = b"".join([piece async for piece in block_slices(mails)])
                    assert text.endswith(b"\r\nEndBlock\r\n")
                    assert text.count(b"\r\nNextMessage\r\n") == len(mails) - 1
                sizes.append(len(mails))

        readers = [asyncio.create_task(read_on()) for _ in range(3)]
        await asyncio.gather(write_data(), write_mail())
        writing = False
        await asyncio.gather(*readers)
        assert len(sizes) > 10
        assert len(await office.read(mailbox, ann)) == 60

    in_post_office(tmp_path, scenario)
