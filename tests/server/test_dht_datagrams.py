"""Datagrams: exact both ways, and whatever else comes is refused at a bounded cost."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealmail_protocol.blocks import BlockType
from sealmail_server.dht.datagrams import (
    LEAST_PING,
    LEAST_REQUEST,
    MAX_ANSWER,
    MAX_CONTACTS,
    MAX_DATAGRAM,
    RPC_BYTES,
    SMALL_VALUE,
    Answer,
    Ask,
    BadDatagram,
    Held,
    Peer,
    Place,
    Request,
    answer_room,
    decode_answer,
    decode_holdings,
    decode_nearest,
    decode_request,
    encode_answer,
    encode_holdings,
    encode_nearest,
    encode_request,
    network_id,
    read_store_content,
)

NETWORK = network_id("a test")
ids = st.binary(min_size=20, max_size=20)
rpcs = st.binary(min_size=RPC_BYTES, max_size=RPC_BYTES)
places = st.builds(Place, st.ip_addresses(), st.integers(1, 65_535)).map(
    lambda place: Place.of(str(place.ip), place.port)
)
requests = st.builds(
    Request,
    st.sampled_from(Ask),
    rpcs,
    ids,
    st.binary(max_size=SMALL_VALUE + 8),
)
answers = st.builds(
    Answer,
    st.sampled_from(Ask),
    rpcs,
    st.binary(min_size=32, max_size=32),
    places,
    st.binary(max_size=answer_room()),
    st.binary(min_size=64, max_size=64),
)
bodies = st.binary(min_size=1, max_size=SMALL_VALUE)
helds = st.one_of(
    st.builds(
        lambda kind, digest, body: Held(kind, digest, len(body), body),
        st.sampled_from(BlockType),
        st.binary(min_size=32, max_size=32),
        bodies,
    ),
    st.builds(
        Held,
        st.sampled_from(BlockType),
        st.binary(min_size=32, max_size=32),
        st.integers(SMALL_VALUE + 1, 2**32 - 1),
    ),
)


@given(requests)
def test_a_request_comes_back_as_it_was(request: Request) -> None:
    """And is neither too short nor too long for what it may be answered with."""
    datagram = encode_request(NETWORK, request)
    assert decode_request(NETWORK, datagram) == request
    assert len(datagram) <= MAX_DATAGRAM


@given(answers)
def test_an_answer_comes_back_as_it_was(answer: Answer) -> None:
    """With the signature it came with."""
    assert decode_answer(NETWORK, encode_answer(NETWORK, answer)) == answer


def test_what_is_sent_to_a_made_up_address_is_at_most_three_times_what_came() -> None:
    """The answer, and a PING to see who is there."""
    assert MAX_ANSWER + LEAST_PING <= 3 * LEAST_REQUEST
    ping = Answer(Ask.PING, bytes(RPC_BYTES), bytes(32), Place.of("::1", 1), b"")
    assert len(encode_answer(NETWORK, ping)) + LEAST_PING <= 3 * LEAST_PING
    assert len(encode_request(NETWORK, Request(Ask.PING, bytes(RPC_BYTES)))) == LEAST_PING
    assert len(encode_request(NETWORK, Request(Ask.NEAREST, bytes(RPC_BYTES)))) == LEAST_REQUEST


@given(st.binary(max_size=MAX_DATAGRAM + 1))
def test_noise_is_refused_and_breaks_nothing(noise: bytes) -> None:
    """With and without the right beginning."""
    for datagram in (noise, NETWORK + noise):
        for decode in (decode_request, decode_answer):
            try:
                decode(NETWORK, datagram)
            except BadDatagram:
                continue
    for read in (decode_nearest, decode_holdings, read_store_content):
        try:
            read(noise)
        except BadDatagram:
            continue


@given(requests, st.data())
def test_a_changed_request_is_another_one_or_none(request: Request, draw: st.DataObject) -> None:
    """No two datagrams are read as the same request."""
    datagram = bytearray(encode_request(NETWORK, request))
    place = draw.draw(st.integers(0, len(datagram) - 1))
    datagram[place] ^= draw.draw(st.integers(1, 255))
    try:
        assert decode_request(NETWORK, bytes(datagram)) != request
    except BadDatagram:
        return


@given(st.lists(st.builds(Peer, ids, places), max_size=MAX_CONTACTS))
def test_contacts_come_back(peers: list[Peer]) -> None:
    """IPv4 and IPv6 alike; as many as there may be fit one answer."""
    content = encode_nearest(bytes(8), peers)
    assert decode_nearest(content) == (bytes(8), tuple(peers))
    assert len(content) <= answer_room()


@given(st.lists(helds, max_size=40))
def test_a_page_of_holdings_fits_and_is_a_beginning(held: list[Held]) -> None:
    """Small values whole; the total tells that there is more."""
    page = encode_holdings(len(held), held, answer_room())
    assert len(page) <= answer_room()
    total, listed = decode_holdings(page)
    assert total == len(held)
    assert list(listed) == held[: len(listed)]
    assert bool(listed) == bool(held)


@pytest.mark.parametrize(
    ("host", "same"),
    [("::ffff:192.0.2.1", "192.0.2.1"), ("2001:db8::1", "2001:db8::1"), ("fe80::1%2", "fe80::1")],
)
def test_one_address_has_one_form(host: str, same: str) -> None:
    """IPv4 inside IPv6 is IPv4."""
    assert Place.of(host, 1).ip == ipaddress.ip_address(same)
