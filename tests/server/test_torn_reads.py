"""Readers see whole blocks while others write them."""

import asyncio
from datetime import timedelta
from pathlib import Path

from tests.server.post_office import ANYBODY, PostOffice, in_post_office, lines_of
from tests.server.users import message, now

from sealmail_protocol.keys import KeyId, data_key, mailbox_key
from sealmail_protocol.replies import Accepted
from sealmail_server.reading import block_slices

ANN = KeyId(b"a" * 20)


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
