"""The published values and samples, each through our own derivations, parsers and readers."""

import hmac
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.protocol.vector_files import PIECES, VECTORS, BlockVector, block_vectors, in_pieces

from sealmail_pow import Stamp, level
from sealmail_protocol.block_codec import (
    parse_block,
    parse_data_header,
    parse_text_block,
    serialise_block,
)
from sealmail_protocol.blocks import Block, DataBlock, MessageAnnouncement
from sealmail_protocol.bodies import DataChunk, DataEnded, DataStarted, TextBody
from sealmail_protocol.bypass import BypassSecret, bypass_token
from sealmail_protocol.canonical import block_digest
from sealmail_protocol.commands import Ping, StoreServer
from sealmail_protocol.conversation import ServerConversation
from sealmail_protocol.errors import InvalidBlock, ProtocolError
from sealmail_protocol.fields import decode_lines
from sealmail_protocol.keys import (
    AckHash,
    BlockKey,
    KeyId,
    acknowledgment_key,
    address_key,
    mailbox_key,
)
from sealmail_protocol.policy import BLOCK_POLICY
from sealmail_protocol.stamps import (
    acknowledgment_challenge,
    claim_challenge,
    message_challenge,
    stamp_bits,
)
from sealmail_protocol.validity import check_stamp

PUBLISHED: list[dict[str, Any]] = json.loads((VECTORS / "spec_vectors.json").read_text())
SPEC = {vector["name"]: vector for vector in PUBLISHED}
WRECK = KeyId.from_hex("C3202B03EB24B1A156DD2F2BB4F5C41CE3E5967D")
ACK = AckHash.from_hex("15f8b83f6380c2a25a0249cc615ec7e58a9dcf71")
ALL = block_vectors()

# The published vectors by what is tested of them here.
KEYS = {
    **{f"mailbox_{n}": mailbox_key(str(n), WRECK) for n in range(4)},
    "address_claim_hash": address_key("wreck@pobox.com"),
    "ack_hash": acknowledgment_key(ACK),
}
STAMPED = {
    "ack_pow": "sample_acknowledgment",
    "message_announcement_1_pow": "sample_announcement_of_eight",
    "message_announcement_2_pow": "sample_announcement",
    "address_claim_pow": "sample_claim",
    "key_announcement_pow_CRLF_removed": "sample_key_announcement",
}
OLDER = {
    "address_claim_pow_ascii_keyid": "sample_claim",
    "key_announcement_pow_LF_kept": "sample_key_announcement",
}
TOKEN = "bypass_token_hmac"
SIGNED = ("gpg_key_announcement_sample", "gpg_address_claim_sample")
# And those whose every test is in tests/pow.
OF_POW = {
    "pow_sample_string",
    "pow_sample_digest_00022ab21",
    "pow_sample_digest_0003b3307",
    *(
        f"gen_{bits}_timing sample {n} level {bits}"
        for bits in (24, 32, 36, 40, 44, 48)
        for n in range(3)
    ),
}


def sample(name: str) -> Block:
    """Return a block of tests/vectors/blocks."""
    (vector,) = (vector for vector in ALL if vector.name == name)
    return parse_block(vector.body(b"\r\n"))


@pytest.mark.parametrize(("name", "key"), KEYS.items())
def test_a_block_key_is_derived_as_published(name: str, key: BlockKey) -> None:
    """Every SHA-1 value of the specification comes out of ``keys``."""
    assert key.hex == SPEC[name]["expected"]


@pytest.mark.parametrize(("name", "block"), STAMPED.items())
def test_the_stamped_bytes_are_those_published(name: str, block: str) -> None:
    """The bytes that a parsed sample stamps are those of the vector, and weigh the same."""
    parsed = sample(block)
    assert parsed.challenge == bytes.fromhex(SPEC[name]["input_hex"])
    assert str(parsed.stamp) == SPEC[name]["pow"]
    assert stamp_bits(parsed) == SPEC[name]["bits"]


@pytest.mark.parametrize("block", ["sample_claim", "sample_key_announcement"])
def test_stamps_of_an_older_build_are_refused(block: str) -> None:
    """One bit and none are less than the floor of their type."""
    parsed = sample(block)
    with pytest.raises(InvalidBlock) as refusal:
        check_stamp(stamp_bits(parsed), 2, BLOCK_POLICY[parsed.type].server_stamp)
    assert refusal.value.code == "stamp"


@pytest.mark.parametrize(("name", "block"), OLDER.items())
def test_the_older_constructions_are_never_computed(name: str, block: str) -> None:
    """The older bytes would be worth 24 bits; they are not what we stamp."""
    older = bytes.fromhex(SPEC[name]["input_hex"])
    assert level(older, Stamp.parse(SPEC[name]["pow"])) == SPEC[name]["bits"] == 24
    assert sample(block).challenge != older


def test_a_bypass_token_is_computed_as_published() -> None:
    """HMAC-SHA-1 over the stamped bytes of the announcement."""
    vector = SPEC[TOKEN]
    announcement = sample("sample_announcement")
    assert isinstance(announcement, MessageAnnouncement)
    assert announcement.challenge == bytes.fromhex(vector["input_hex"])
    token = bypass_token(BypassSecret(bytes.fromhex(vector["key_hex"])), announcement.challenge)
    assert token.raw.hex() == vector["expected"]
    assert hmac.digest(
        bytes.fromhex(vector["key_hex"]), announcement.challenge, "sha1"
    ) == bytes.fromhex(vector["expected"])


@pytest.mark.parametrize("name", SIGNED)
def test_a_signed_sample_parses_and_is_written_again(name: str) -> None:
    """The text of the vector is the file beside it, and its round trip is exact."""
    text = SPEC[name]["text"].encode()
    assert (VECTORS / SPEC[name]["file"]).read_bytes() == text
    assert serialise_block(parse_block(text)) == text.replace(b"\n", b"\r\n")


def test_every_published_vector_has_a_test() -> None:
    """Each is named once, here or as one of tests/pow: a further one needs a test first."""
    tested = [*KEYS, *STAMPED, *OLDER, TOKEN, *SIGNED, *OF_POW]
    assert sorted(tested) == sorted(vector["name"] for vector in PUBLISHED)


def test_challenges_are_built_from_parts_as_from_blocks() -> None:
    """The functions that a sender calls before there is a block give the block's bytes."""
    night = datetime(2014, 10, 31, 9, 2, 22, tzinfo=UTC)
    assert acknowledgment_challenge(night, ACK) == sample("sample_acknowledgment").challenge
    day = datetime(2014, 11, 9, 8, 32, 25, tzinfo=UTC)
    assert claim_challenge(day, WRECK, "wreck@pobox.com") == sample("sample_claim").challenge
    mail = sample("sample_announcement_of_eight")
    assert isinstance(mail, MessageAnnouncement)
    parts = message_challenge(WRECK, mail.message_hash, mail.date, mail.data_blocks)
    assert parts == mail.challenge


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("vector", ALL, ids=lambda vector: vector.name)
def test_a_block_is_taken_or_refused_as_expected(vector: BlockVector, line_end: bytes) -> None:
    """Every file of tests/vectors/blocks, whole."""
    body = vector.body(line_end)
    if vector.expected["expect"] != "accepted":
        with pytest.raises(InvalidBlock) as refusal:
            parse_block(body)
        assert refusal.value.code == vector.expected["expect"]
        return
    block = parse_block(body)
    found = {
        "type": str(block.type),
        "key": str(block.own_key),
        "digest": block_digest(block).hex(),
        "bits": str(stamp_bits(block)),
    }
    assert found.items() >= {k: v for k, v in vector.expected.items() if k in found}.items()
    kept = [line for line in vector.lines if not line.lower().startswith(b"padding: ")]
    written = b"".join(line + b"\r\n" for line in kept) + (vector.data or b"")
    assert serialise_block(block) == written
    assert parse_block(written) == block


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("vector", ALL, ids=lambda vector: vector.name)
def test_a_body_on_the_wire_is_the_same_block(vector: BlockVector, piece: int) -> None:
    """However the bytes come, and whatever follows, the reader gives the block's own lines."""
    server = ServerConversation(encrypted=True)
    key = BlockKey(bytes(20))
    wire = f"{StoreServer(key)}\r\n".encode() + vector.on_the_wire() + b"PING\r\nPI"
    if vector.name == "long_line":
        with pytest.raises(ProtocolError):
            read_all(server, wire, piece)
        return
    command, *body, ping = read_all(server, wire, piece)
    assert (command, ping) == (StoreServer(key), Ping())
    try:
        found: str | Block = block_of(body)
    except InvalidBlock as error:
        found = str(error.code)
    if vector.expected["expect"] == "accepted":
        assert found == parse_block(vector.body(b"\r\n"))
    else:
        assert found == vector.expected["expect"]


def read_all(server: ServerConversation, wire: bytes, piece: int) -> list[object]:
    """Return all events of ``wire``, fed in pieces."""
    events: list[object] = []
    for part in in_pieces(wire, piece):
        server.receive_data(part)
        while (event := server.next_event()) is not None:
            events.append(event)
    return events


def block_of(events: list[object]) -> Block:
    """Return the block that the events of a body make up."""
    first = events[0]
    if isinstance(first, TextBody):
        return parse_text_block(decode_lines(first.lines))
    assert isinstance(first, DataStarted)
    assert isinstance(events[-1], DataEnded)
    data = b"".join(event.data for event in events if isinstance(event, DataChunk))
    assert len(data) == first.size
    return DataBlock(parse_data_header(decode_lines(first.lines)), data)
