"""A real server on loopback, in a process of its own, for the tests of one file."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.server.starting import RunningServer, operate, sealmaild, started_server

__all__ = ["RunningServer", "sealmaild", "server"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Start a server on a free loopback port with some accounts, and stop it in good order."""
    directory = tmp_path_factory.mktemp("server") / "data"
    with started_server(directory) as running:
        keys = operate("account", "generate", "20", "--data", str(directory)).split()
        yield replace(running, auth_keys=tuple(keys))
