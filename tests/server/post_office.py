"""A server without its door: a real store and verifier, and a clock that the test sets."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

from tests.server.users import data_lines, now

from sealmail_protocol.blocks import MessageAnnouncement, TextBlock
from sealmail_protocol.bundles import join_bundle
from sealmail_protocol.errors import Refusal
from sealmail_protocol.keys import BlockKey, KeyId, mailbox_key
from sealmail_protocol.policy import Role
from sealmail_protocol.replies import Refused, Verdict
from sealmail_server.expiry import Expiry
from sealmail_server.intake import Intake
from sealmail_server.limits import Limits
from sealmail_server.reading import find_block
from sealmail_server.visitor import Visitor
from sealmail_store import Account, BlockStore, StoredEntry
from sealmail_verify import VerifierPool

T = TypeVar("T")
ANYBODY = Visitor(Role.ANONYMOUS, source="203.0.113.1")


@dataclass
class PostOffice:
    """What the session of a connection would call, and the time of its clock."""

    store: BlockStore
    verifier: VerifierPool
    limits: Limits = field(default_factory=Limits)
    time: datetime = field(default_factory=now)

    def __post_init__(self) -> None:
        self.intake = Intake(self.store, self.verifier, lambda: self.time, self.limits)
        self.expiry = Expiry(self.store, lambda: self.time, self.limits)

    async def open_account(self, key_id: KeyId) -> Visitor:
        """Give a key id an account, judge what waited for it, and return its login."""
        account = Account(key_id.raw + bytes(12), key_id.hex, "confirmed", self.time, self.time)
        await self.store.write(lambda view: view.put_account(account))
        await self.intake.judge_waiting(key_id.hex)
        return user(key_id)

    async def post(
        self, block: TextBlock, key: BlockKey | None = None, visitor: Visitor = ANYBODY
    ) -> Verdict:
        """Store one block under the key it asks for."""
        return await self.intake.take_text(key or key_of(block), lines_of(block), visitor)

    async def replicate(self, block: TextBlock, key: BlockKey | None = None) -> Verdict:
        """Take one block from the partner."""
        return await self.intake.replicate_text(key or key_of(block), lines_of(block), None)

    async def post_bundle(self, key: BlockKey, *blocks: TextBlock) -> Verdict:
        """Store several blocks in one body."""
        lines = tuple(line.encode() for line in join_bundle(blocks))
        return await self.intake.take_text(key, lines, ANYBODY)

    async def post_data(
        self, data: bytes, visitor: Visitor = ANYBODY, date: datetime | None = None
    ) -> Verdict:
        """Store a data block."""
        key, lines = data_lines(data, date or self.time)
        intake = self.intake.receive_data(key, tuple(line.encode() for line in lines), visitor)
        for start in range(0, len(data), 100_000):
            await intake.take(data[start : start + 100_000])
        return await intake.finish()

    async def read(self, key: BlockKey, visitor: Visitor) -> tuple[StoredEntry, ...]:
        """Return what a GET is answered with."""
        return await self.store.read(
            lambda view: find_block(view, key, None, visitor, self.time, self.limits)
        )

    def pass_time(self, **parts: float) -> None:
        """Move the clock on."""
        self.time += timedelta(**parts)


def in_post_office(
    directory: Path,
    scenario: Callable[[PostOffice], Awaitable[T]],
    limits: Limits | None = None,
) -> T:
    """Play ``scenario`` in a new post office, and close it."""

    async def play() -> T:
        async with (
            BlockStore.open(directory, create=True) as store,
            VerifierPool() as verifier,
            asyncio.timeout(120),
        ):
            return await scenario(PostOffice(store, verifier, limits or Limits()))

    return asyncio.run(play())


def user(key_id: KeyId) -> Visitor:
    """Return the login of a user."""
    return Visitor(Role.USER, key_id.hex, confirmed=True)


def key_of(block: TextBlock) -> BlockKey:
    """Return the key of an announcement."""
    assert isinstance(block, MessageAnnouncement)
    return mailbox_key(block.mailbox, block.recipient)


def lines_of(block: TextBlock) -> tuple[bytes, ...]:
    """Return the lines as they come from the wire."""
    return tuple(line.encode() for line in block.lines)


def code_of(verdict: Verdict | None) -> Refusal | None:
    """Return why a block was refused."""
    return verdict.code if isinstance(verdict, Refused) else None
