"""A server that failed is asked last, for a while."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sealmail_client.home_database import HomeDatabase
from sealmail_client.server_hints import GO_BACK_AFTER, ServerHints
from sealmail_protocol.addresses import ServerAddress

A, B, C = (ServerAddress(f"{name}.example", 8081) for name in "abc")
START = datetime(2026, 5, 1, tzinfo=UTC)


class Watch:
    """A clock that is set by hand."""

    now = START

    def __call__(self) -> datetime:
        """Return its time."""
        return self.now


@pytest.fixture
def watch() -> Watch:
    """Return a clock of this test's own."""
    return Watch()


@pytest.fixture
def hints(tmp_path: Path, watch: Watch) -> Iterator[ServerHints]:
    """Return the hints of a new home."""
    database = HomeDatabase(tmp_path / "mail.sqlite")
    yield ServerHints(database, watch)
    database.close()


def test_servers_that_are_well_keep_their_order(hints: ServerHints) -> None:
    """As the user, or chance, put them."""
    assert hints.order((B, A, C)) == [B, A, C]


def test_who_was_passed_over_comes_last_and_is_gone_back_to(
    hints: ServerHints, watch: Watch
) -> None:
    """For ten minutes, whatever else happens."""
    hints.note_reached((A, B, C), B)
    assert hints.order((A, B, C)) == [B, C, A]
    watch.now += GO_BACK_AFTER - timedelta(seconds=1)
    assert hints.order((A, B, C)) == [B, C, A]
    watch.now += timedelta(seconds=1)
    assert hints.order((A, B, C)) == [A, B, C]


def test_a_server_that_serves_again_is_well(hints: ServerHints) -> None:
    """Also where it was only asked because the other one had failed too."""
    hints.note_failed(A)
    hints.note_failed(B)
    assert hints.order((A, B)) == [A, B]
    hints.note_reached((A, B), A)
    assert hints.order((B, A)) == [A, B]


def test_a_way_has_failed_when_all_its_servers_have(hints: ServerHints, watch: Watch) -> None:
    """Nobody waits as long for it then, until one is gone back to."""
    hints.note_failed(A)
    assert not hints.all_failed_lately((A, B))
    hints.note_failed(B)
    assert hints.all_failed_lately((A, B))
    watch.now += GO_BACK_AFTER
    assert not hints.all_failed_lately((A, B))


def test_a_failure_of_the_future_is_no_hint(hints: ServerHints, watch: Watch) -> None:
    """The clock was wrong when it was noted."""
    hints.note_failed(A)
    watch.now -= timedelta(days=1)
    assert hints.order((A, B)) == [A, B]
