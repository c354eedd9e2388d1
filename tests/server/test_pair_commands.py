"""What the operator types about pairs and the queue, and what he is shown by it."""

import asyncio
import re
import subprocess
from datetime import timedelta
from pathlib import Path

from click.testing import CliRunner
from tests.server.inside import TurnedClock
from tests.server.mailing import (
    RECIPIENT,
    SENDER,
    log_in,
    make_servers,
    post_to,
    queue_of,
    running,
    send_data,
    send_mail,
    until,
)
from tests.server.pairs import Side, free_port, store_many
from tests.server.starting import refused, sealmaild
from tests.server.users import message, now

from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.replies import QueueState
from sealmail_server.cli import main


def test_pairing_shows_how_far_the_copy_has_got(tmp_path: Path) -> None:
    """Until the other server has everything; a partner that is away is told with its reason."""
    first, second = (Side.make(tmp_path / name) for name in ("a", "b"))
    try:
        first.start()
        second.start()
        asyncio.run(store_many(second, [f"block {number}".encode() for number in range(1000)]))
        code = first.operate("pair", "--address", str(first.address)).strip()
        join = ("pair", code, "--address", str(second.address), "--data", str(second.directory))
        done = subprocess.run(sealmaild(*join), capture_output=True, text=True, check=True)
        begin, *lines = done.stderr.splitlines()
        assert begin == f"paired with {first.address}"
        told = [re.fullmatch(r"compared (\d+) %, \d+ to be sent", line) for line in lines]
        shares = [int(match[1]) for match in told if match]
        others = [line for line, match in zip(lines, told, strict=True) if not match]
        assert all(f"{first.address} is not connected (" in line for line in others)
        assert shares
        assert shares == sorted(shares)
        assert shares[-1] <= 100
        assert done.stdout == f"{first.address} has all that this server holds\n"
        first.end()
        code_of_exit, complaint = refused("pair", "sync", "--data", str(second.directory))
        assert code_of_exit
        assert str(first.address) in complaint
    finally:
        for side in (first, second):
            side.end()


def test_the_queue_is_listed_retried_and_dropped_by_hand(tmp_path: Path) -> None:
    """In lines for people; where a row goes only with ``--full``, and nothing of it afterwards."""
    home, other = make_servers(tmp_path, 2)
    clock, address = TurnedClock(now()), ServerAddress("127.0.0.1", free_port())

    def queue(*words: str, code: int = 0) -> str:
        done = CliRunner().invoke(main, ["queue", *words, "--data", str(home)])
        assert done.exit_code == code, done.output
        return done.stderr if code else done.stdout

    async def scenario() -> None:
        async with running(home, clock=clock) as (server,), await log_in(server) as remote:
            after = clock.moment + timedelta(days=1)
            await send_data(remote, b"to nobody yet", post_to(address))
            await send_mail(remote, message(RECIPIENT), post_to(address), after=after)

            async def is_tried() -> bool:
                return (await queue_of(remote))[0].code == "unreachable"

            await until(is_tried)
            listed = await asyncio.to_thread(queue, "list")
            data, mail = listed.splitlines()
            number = int(data.split()[0])
            assert re.match(rf" +{number}  waiting    unreachable +data +{SENDER.hex}  ", data)
            assert "message-announcement" in mail
            assert "tried 1" in data
            assert "tried 0" in mail
            assert str(address) not in listed
            assert (await asyncio.to_thread(queue, "list", "--full")).count(str(address)) == 2
            async with running(other, clock=clock, listen=str(address)):
                # By itself nothing goes yet, nor is anybody looked at after a second.
                assert await asyncio.to_thread(queue, "retry", str(number)) == (
                    "1 to be tried now\n"
                )
                clock.turn(seconds=1)

                async def is_delivered() -> bool:
                    return (await queue_of(remote))[0].state is QueueState.DELIVERED

                await until(is_delivered)
            assert "delivered" not in await asyncio.to_thread(queue, "list")
            assert "delivered" in await asyncio.to_thread(queue, "list", "--all")

    asyncio.run(scenario())
    # The same without a server.
    assert queue("retry") == "1 to be tried now\n"
    number = int(queue("list").split()[0])
    assert queue("drop", str(number)) == f"row {number} is given up\n"
    assert " given-up   dropped " in queue("list", "--full")
    assert str(address) not in queue("list", "--full")
    assert f"no row {number} waits" in queue("retry", str(number), code=1)
