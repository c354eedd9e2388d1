"""``DNS TXT`` through a running server: what clients are told, and how often they may ask."""

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.net.name_server import BROKEN_ZONE, name_server
from tests.server.inside import TurnedClock, connect, make_server, serving

from sealmail_net.errors import ConnectionLost
from sealmail_net.remote_server import RemoteServer
from sealmail_net.txt_resolver import LookupFailed, TxtAnswer, TxtResolver
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.commands import DnsTxt
from sealmail_protocol.replies import Listing, Word
from sealmail_server import session
from sealmail_server.config import Config
from sealmail_server.doctoring import examine_dns
from sealmail_server.lookups import MAX_AT_ONCE, Lookups

T = TypeVar("T")

RECORDS = """
cmsvr TXT "server=mail.found.test:8081"
cmsvr TXT "v=spf1 -all"
hostile TXT "x\\013\\010EndBlock\\013\\010DONE"
"""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Return a directory with the data of a server and of a name server."""
    directory = Path(tempfile.mkdtemp(prefix="smt-"))
    make_server(directory / "server", TurnedClock(datetime.now(UTC)))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def dns(place: Path) -> Iterator[str]:
    """Return where the name server listens."""
    with name_server(place / "knot", {"found.test": RECORDS}) as address:
        yield str(address)


def talk(place: Path, scene: Callable[[RemoteServer], Awaitable[T]], **settings: Any) -> T:
    """Run the server, and talk to it as a stranger."""

    async def play() -> T:
        clock = TurnedClock(datetime.now(UTC))
        async with (
            serving(place / "server", clock, **settings) as server,
            await connect(server) as remote,
            asyncio.timeout(30),
        ):
            return await scene(remote)

    return asyncio.run(play())


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("cmsvr.found.test", Listing(("TXT: server=mail.found.test:8081", "TXT: v=spf1 -all"))),
        ("CMSVR.Found.Test", Listing(("TXT: server=mail.found.test:8081", "TXT: v=spf1 -all"))),
        ("absent.found.test", Word.NOT_FOUND),
        ("hostile.found.test", Word.NOT_FOUND),
        (f"cmsvr.{BROKEN_ZONE}", Word.NOT_FOUND),
        ("localhost", Word.NOT_FOUND),
        ("127.0.0.1", Word.NOT_FOUND),
    ],
)
def test_a_client_is_told_what_dns_says(
    place: Path, dns: str, name: str, answer: Listing | Word
) -> None:
    """Records come one to a line; no record, no answer and no public name are NOT FOUND."""

    async def scene(remote: RemoteServer) -> None:
        assert await remote.call(DnsTxt(name)) == answer
        assert await remote.ping("in step") == "in step"

    talk(place, scene, dns_server=dns)


def test_what_is_switched_off_is_failed(place: Path, dns: str) -> None:
    """With ``permit_dns_txt = false`` nobody is told anything."""

    async def scene(remote: RemoteServer) -> object:
        return await remote.call(DnsTxt("cmsvr.found.test"))

    assert talk(place, scene, dns_server=dns, permit_dns_txt=False) is Word.FAILED


def test_who_asks_too_much_is_slowed_and_sent_away(
    place: Path, dns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source has forty questions at once, and then two a second over all its connections."""
    monkeypatch.setattr(session, "MAX_DELAY", 0.8)
    question = DnsTxt("cmsvr.found.test")

    async def scene() -> None:
        clock, loop = TurnedClock(datetime.now(UTC)), asyncio.get_running_loop()
        async with serving(place / "server", clock, dns_server=dns) as server:
            remotes = [await connect(server) for _ in range(4)]
            begun = loop.time()
            for _ in range(41):
                await remotes[0].call(question)
            assert loop.time() - begun > 0.2
            answers = await asyncio.gather(
                *(remote.call(question) for remote in remotes), return_exceptions=True
            )
            assert any(isinstance(answer, Listing) for answer in answers)
            assert any(isinstance(answer, ConnectionLost) for answer in answers)

    asyncio.run(scene())


class CountingSource:
    """A fake of DNS that counts questions, and answers when it is let."""

    def __init__(self, lifetime: int = 300) -> None:
        self.asked: list[str] = []
        self.lifetime = lifetime
        self.fails = False
        self.answers = asyncio.Event()

    async def ask(self, name: str) -> TxtAnswer:
        """Answer with the name, or fail."""
        self.asked.append(name)
        await self.answers.wait()
        if self.fails:
            raise LookupFailed(name, "on purpose")
        return TxtAnswer((name,) if "absent" not in name else (), self.lifetime)


def test_answers_are_remembered_for_their_lifetime() -> None:
    """Found or not, a name is asked once until its answer has expired; a failure much sooner."""

    async def scene() -> None:
        source, moment = CountingSource(), 0.0
        source.answers.set()
        lookups = Lookups(source, lambda: moment)
        for name in ("a.test", "absent.test"):
            for _ in range(3):
                await lookups.texts(name)
        assert source.asked == ["a.test", "absent.test"]
        moment = 301.0
        await lookups.texts("a.test")
        source.fails = True
        for _ in range(3):
            with pytest.raises(LookupFailed, match="on purpose"):
                await lookups.texts("b.test")
        assert source.asked[2:] == ["a.test", "b.test"]
        moment = 312.0
        source.fails = False
        assert await lookups.texts("b.test") == ("b.test",)

    asyncio.run(scene())


def test_questions_under_way_are_shared_and_bounded() -> None:
    """Who asks for the same name waits for one question; beyond the bound others are refused."""

    async def scene() -> None:
        source = CountingSource()
        lookups = Lookups(source, lambda: 0.0)
        same = [asyncio.create_task(lookups.texts("same.test")) for _ in range(10)]
        others = [
            asyncio.create_task(lookups.texts(f"x{number}.test")) for number in range(MAX_AT_ONCE)
        ]
        await asyncio.sleep(0.05)
        assert len(source.asked) == MAX_AT_ONCE
        same[0].cancel()
        source.answers.set()
        rest = await asyncio.gather(*same[1:], *others, return_exceptions=True)
        assert rest[:9] == [("same.test",)] * 9
        assert sum(isinstance(one, LookupFailed) for one in rest) == 1

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("domain", "name", "well", "text"),
    [
        ("found.test", "mail.found.test", True, "names mail.found.test:8081"),
        ("found.test", "other.found.test", False, "not other.found.test:8081"),
        ("absent.found.test", "mail.found.test", False, "no server"),
        (BROKEN_ZONE, "mail.found.test", False, "refused or failed"),
        ("localhost", "localhost", True, "not looked up"),
    ],
)
def test_the_doctor_compares_the_record(
    dns: str, domain: str, name: str, well: bool, text: str
) -> None:
    """The record must name this server; a domain of this machine alone has none."""
    config = Config.of({"domain": domain, "names": [name]})
    resolver = TxtResolver(ServerAddress.parse(dns))
    (finding,) = asyncio.run(examine_dns(config, 8081, resolver))
    assert finding.well is well
    assert text in finding.text
