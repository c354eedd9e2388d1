"""The keys of servers on disk: for each way, with the one before."""

from datetime import timedelta
from pathlib import Path

import pytest
from tests.client.samples import DATE

from sealmail_client.home_database import HomeDatabase
from sealmail_client.pin_book import KnownPin, PinBook
from sealmail_net.pins import delivery_way, login_way
from sealmail_net.ways import Way
from sealmail_protocol.addresses import ServerAddress

SERVER = ServerAddress.parse("mail.example:8081")
OLD, NEW = b"o" * 32, b"n" * 32


@pytest.fixture
def book(tmp_path: Path) -> PinBook:
    """Return an empty book, whose clock goes on a day at each look."""
    days = iter(range(100))
    database = HomeDatabase(tmp_path / "mail.sqlite")
    return PinBook(database, lambda: DATE + timedelta(days=next(days)))


def test_each_way_to_a_server_has_its_own_pin(book: PinBook) -> None:
    """What a delivery records does not touch what a login relies on."""
    assert book.pin_of(login_way(SERVER)) is None
    book.remember(login_way(SERVER), OLD)
    book.remember(delivery_way(SERVER), NEW)
    assert book.pin_of(login_way(SERVER)) == OLD
    assert book.pin_of(delivery_way(SERVER)) == NEW


def test_a_pin_that_is_replaced_stays_known_beside_the_new_one(book: PinBook) -> None:
    """The same pin again is no change."""
    for pin in (OLD, OLD, NEW, NEW):
        book.remember("delivery mail.example:8081", pin)
    assert book.all() == (
        KnownPin("delivery mail.example:8081", NEW, DATE + timedelta(days=2), OLD),
    )


def test_the_users_word_holds_for_every_way(book: PinBook) -> None:
    """Also for a server that was never met."""
    book.remember(login_way(SERVER), OLD)
    book.accept(SERVER, NEW)
    assert {one.way: (one.pin, one.previous) for one in book.all()} == {
        "direct mail.example:8081": (NEW, OLD),
        "delivery mail.example:8081": (NEW, None),
        "exit mail.example:8081": (NEW, None),
        "delivery-exit mail.example:8081": (NEW, None),
    }


def test_what_an_exit_showed_is_accepted_for_exits_alone(book: PinBook) -> None:
    """The pin of the direct way stays what it was."""
    book.remember(login_way(SERVER), OLD)
    book.accept(SERVER, NEW, (Way.EXIT,))
    assert book.pin_of(login_way(SERVER)) == OLD
    assert book.pin_of(login_way(SERVER, Way.EXIT)) == NEW
