"""Two real servers, and users with real homes on both; everything is made once a session."""

import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.end_to_end.programs import Server, User


@pytest.fixture(scope="session")
def place() -> Iterator[Path]:
    """Return a directory whose path is short enough for the sockets of GnuPG's agents."""
    directory = Path(tempfile.mkdtemp(prefix="sme-"))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="session")
def servers(place: Path) -> Iterator[tuple[Server, Server]]:
    """Run two servers that know nothing of each other."""
    first, second = (Server.create(place / name) for name in ("a", "b"))
    for server in (first, second):
        server.start()
    yield first, second
    for server in (first, second):
        server.stop()


@pytest.fixture(scope="session")
def people(place: Path, servers: tuple[Server, Server]) -> dict[str, User]:
    """Let four people settle: Mallory claims the address that is Carol's."""
    first, second = servers
    settling = (
        ("Alice", "alice@a.example", first),
        ("Bob", "bob@b.example", second),
        ("Carol", "carol@a.example", first),
        ("Mallory", "carol@a.example", first),
    )
    with ThreadPoolExecutor(2) as pool:
        users = pool.map(lambda one: User.settle(place, *one), settling)
    return {user.name: user for user in users}


@pytest.fixture
def alice(people: dict[str, User]) -> User:
    """Return a user of the first server."""
    return people["Alice"]


@pytest.fixture
def bob(people: dict[str, User]) -> User:
    """Return a user of the second server."""
    return people["Bob"]


@pytest.fixture
def carol(people: dict[str, User]) -> User:
    """Return another user of the first server."""
    return people["Carol"]


@pytest.fixture
def mallory(people: dict[str, User]) -> User:
    """Return somebody who means no good."""
    return people["Mallory"]
