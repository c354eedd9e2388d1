"""Several blocks in one body, and the targets at the head of a proxied one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import strategies as s

from sealmail_protocol.addresses import Transport
from sealmail_protocol.block_codec import parse_text_block
from sealmail_protocol.blocks import Acknowledgment, MessageAnnouncement
from sealmail_protocol.bundles import join_bundle, split_bundle, split_post_to
from sealmail_protocol.errors import InvalidBlock
from sealmail_protocol.fields import decode_lines


@given(st.lists(s.message_announcements, min_size=1, max_size=4))
def test_a_bundle_is_split_into_what_was_joined(mails: list[MessageAnnouncement]) -> None:
    """Every entry comes out with its own lines."""
    lines = [line.encode() for line in join_bundle(mails)]
    assert [parse_text_block(decode_lines(raw)) for raw in split_bundle(lines)] == mails


def test_a_bad_entry_spoils_no_other() -> None:
    """Entries come raw, so that one that is not even UTF-8 is refused alone."""
    lines = (b"good", b"nextmessage", b"\xff", b"NEXTCLAIM", b"good")
    assert list(split_bundle(lines)) == [(b"good",), (b"\xff",), (b"good",)]


@pytest.mark.parametrize(
    ("lines", "entries"),
    [((), [()]), ((b"NextMessage",), [(), ()]), ((b"a", b"NextMessage"), [(b"a",), ()])],
)
def test_an_empty_entry_is_an_entry(
    lines: tuple[bytes, ...], entries: list[tuple[bytes, ...]]
) -> None:
    """It is there to be refused."""
    assert list(split_bundle(lines)) == entries


@given(s.acknowledgments)
def test_other_types_stand_alone(block: Acknowledgment) -> None:
    """There is no separator for them."""
    with pytest.raises(ValueError, match="stands alone"):
        join_bundle((block, block))


@given(st.lists(s.transports, min_size=1, max_size=5))
def test_targets_are_split_from_the_block(targets: list[Transport]) -> None:
    """Post-To lines of either case, in their order."""
    lines = [f"post-TO: {target}".encode() for target in targets]
    assert split_post_to([*lines, b"Type: data"]) == (tuple(targets), (b"Type: data",))


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([b"Type: data"], "0 Post-To lines"),
        ([b"Post-To: entangled"] * 257, "257 Post-To lines"),
        ([b"Post-To: entangled", b"Type: data", b"Post-To: entangled"], "behind the head"),
        ([b"Post-To: entangled", b"post-to:entangled"], "behind the head"),
        ([b"Post-To: smtp=a:1"], "neither"),
        ([b"Post-To: \xff"], "UTF-8"),
    ],
)
def test_a_proxied_body_is_refused(lines: list[bytes], reason: str) -> None:
    """Its targets stand at its head, and each is a transport."""
    with pytest.raises(InvalidBlock, match=reason) as refusal:
        split_post_to(lines)
    assert refusal.value.code == "form"
