"""What a server says of a block that it was given, and which time it is there."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import cast

import pytest
from tests.client.samples import BOB, DATE
from tests.client.signed_blocks import message_to

from sealmail_client.channels import BY_DHT, BY_SERVER, Channel
from sealmail_client.posting import NotTaken, Outcome, Peer, Taken
from sealmail_net.remote_server import RemoteServer
from sealmail_pow import Difficulty
from sealmail_protocol.canonical import block_digest
from sealmail_protocol.commands import StoreEntangled, StoreServer
from sealmail_protocol.dates import format_date
from sealmail_protocol.errors import Refusal
from sealmail_protocol.keys import mailbox_key
from sealmail_protocol.replies import Accepted, Pending, Refused, Verdict, Word

BLOCK = message_to(BOB)


@dataclass
class Answers:
    """A server that gives two answers prepared for it."""

    word: Word
    judgment: Verdict | None

    posted: list[object] = field(default_factory=list)

    async def post(self, command: object, lines: object) -> Word:
        """Answer STORE."""
        self.posted.append(command)
        assert lines == BLOCK.lines
        return self.word

    async def verdict(self, digest: bytes) -> Verdict | None:
        """Answer VERDICT, which must be about the block."""
        assert digest == block_digest(BLOCK)
        return self.judgment


def peer(word: Word, judgment: Verdict | None, capabilities: Mapping[str, str]) -> Peer:
    """Return a connected server."""
    return Peer(cast("RemoteServer", Answers(word, judgment)), capabilities)


def outcome(word: Word, judgment: Verdict | None = None, *, verdicts: bool = True) -> Outcome:
    """Post a block and return what became of it."""
    asked = peer(word, judgment, {"VERDICT": ""} if verdicts else {})
    return asyncio.run(asked.post(mailbox_key("0", BOB), BLOCK))


def test_a_block_is_taken_when_the_verdict_says_so() -> None:
    """DONE alone is enough only where no verdicts are given."""
    assert outcome(Word.DONE, Accepted()) == Taken()
    assert outcome(Word.DONE, verdicts=False) == Taken()


@pytest.mark.parametrize(
    ("channel", "command"), [(BY_SERVER, StoreServer), (BY_DHT, StoreEntangled)]
)
def test_the_channel_says_by_which_command_a_block_goes(channel: Channel, command: type) -> None:
    """For the same key; a server that takes no part in the DHT is not even asked."""
    key, server = mailbox_key("0", BOB), Answers(Word.DONE, None)
    able = Peer(cast("RemoteServer", server), {"DHT-VALUE": ""}, channel)
    assert asyncio.run(able.post(key, BLOCK)) == Taken()
    assert server.posted == [command(key)]
    unable = Peer(cast("RemoteServer", server), {}, BY_DHT)
    assert isinstance(asyncio.run(unable.post(key, BLOCK)), NotTaken)
    assert len(server.posted) == 1


@pytest.mark.parametrize(
    ("word", "judgment", "demand"),
    [
        (Word.FAILED, Accepted(), None),
        (Word.DONE, None, None),
        (Word.DONE, Pending(), None),
        (Word.DONE, Pending(Difficulty(50, 2)), Difficulty(50, 2)),
        (Word.DONE, Refused(Refusal.PRICE, "bd,50,2 is asked"), Difficulty(50, 2)),
        (Word.DONE, Refused(Refusal.PRICE, "more"), None),
        (Word.DONE, Refused(Refusal.FULL, "bd,50,2"), None),
    ],
)
def test_what_is_not_taken_has_a_reason_and_perhaps_a_price(
    word: Word, judgment: Verdict | None, demand: Difficulty | None
) -> None:
    """Only a price can be paid."""
    refused = outcome(word, judgment)
    assert isinstance(refused, NotTaken)
    assert refused.reason
    assert refused.demand == demand


@pytest.mark.parametrize(
    ("time", "moment"),
    [
        (format_date(DATE + timedelta(hours=1)), DATE + timedelta(hours=1)),
        (format_date(DATE - timedelta(hours=1)), DATE),
        (format_date(DATE + timedelta(days=1)), DATE),
        ("9999-12-31T23:59:59Z", DATE),
        ("0001-01-01T00:00:00Z", DATE),
        ("soon", DATE),
        ("", DATE),
    ],
)
def test_the_later_of_two_near_clocks_is_right(time: str, moment: object) -> None:
    """A server that is a day off is wrong, or lies."""
    assert peer(Word.DONE, None, {"TIME": time}).moment(DATE) == moment
