"""Taking one data block in: its bytes go to disk as they come, hashed and weighed on the way."""

import asyncio
import hashlib
import logging
from collections.abc import Callable
from datetime import datetime

from sealmail_pow import StampCheck
from sealmail_protocol.block_codec import parse_data_header
from sealmail_protocol.blocks import BlockType, DataHeader
from sealmail_protocol.canonical import data_digest
from sealmail_protocol.errors import InvalidBlock, Refusal
from sealmail_protocol.fields import decode_lines, join_lines
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.policy import BLOCK_POLICY
from sealmail_protocol.replies import Verdict
from sealmail_protocol.stamps import data_challenge_prefix
from sealmail_protocol.validity import check_stamp
from sealmail_server.admission import Decision, admit_data
from sealmail_server.candidates import Arrival, examine_data
from sealmail_server.limits import Limits
from sealmail_server.partnership import Partnership
from sealmail_server.quotas import Arriving, check_data_room
from sealmail_store import (
    INLINE_LIMIT,
    BlockStore,
    DataSpool,
    ReadView,
    StoredEntry,
    StoreError,
    WriteView,
)

_log = logging.getLogger(__name__)

# Decides about a data block inside the unit of work that stores it.
AdmitData = Callable[[WriteView, StoredEntry, Decision], Verdict]

# A block up to this size is hashed in the time that a trip to another thread takes, and it
# never touches a file of its own.
_SMALL = INLINE_LIMIT // 4


class DataIntake:
    """One data block on its way in.

    A chunk is written and hashed in another thread while the next one is received; so at most
    two are in memory.
    """

    def __init__(
        self,
        store: BlockStore,
        key: BlockKey,
        lines: tuple[bytes, ...],
        arrival: Arrival,
        clock: Callable[[], datetime],
        limits: Limits,
        arriving: Arriving,
        remember_refusal: Callable[[bytes, InvalidBlock], Verdict],
        partnership: Partnership,
    ) -> None:
        self._store = store
        self._key = key
        self._arrival = arrival
        self._clock = clock
        self._limits = limits
        self._arriving = arriving
        self._counted = 0
        self._remember_refusal = remember_refusal
        self._partnership = partnership
        body = b"".join(line + b"\r\n" for line in lines)
        self._digest = hashlib.sha256(body + key.raw).digest()
        self._under_way: asyncio.Future[None] | None = None
        self._error: InvalidBlock | None = None
        self._taking: _Taking | None = None
        try:
            header = parse_data_header(decode_lines(lines))
            examine_data(header, arrival, clock(), limits)
        except InvalidBlock as error:
            self._error = error
            return
        self._taking = _Taking(header, store.spool())

    async def take(self, chunk: bytes) -> None:
        """Take the next bytes; those of a block already refused are dropped."""
        taking = self._taking
        if taking is None:
            return
        if taking.header.size <= _SMALL:
            taking.take(chunk)
            return
        if self._arrival.visitor is not None and not self._counted:
            # What comes by other ways has a share of its own.
            await self._find_room(taking.header.size)
            if self._error is not None:
                return
        await self._chunk_done()
        loop = asyncio.get_running_loop()
        self._under_way = loop.run_in_executor(None, taking.take, chunk)

    async def finish(self, admit: AdmitData = admit_data) -> Verdict:
        """Decide by ``admit``, commit, and return the verdict."""
        try:
            return await self._finish(admit)
        except InvalidBlock as error:
            return self._remember_refusal(self._digest, error)
        except StoreError:
            raise
        except Exception:
            _log.exception("a data block broke its admission")
            reason = "this server could not decide about the block"
            return self._remember_refusal(self._digest, InvalidBlock(Refusal.INTERNAL, reason))
        finally:
            await self.discard()

    async def discard(self) -> None:
        """Forget the bytes of a block that is not stored; may be repeated."""
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            # A chunk that cannot be stopped is waited for; how it ended matters no more.
            await asyncio.wait((under_way,))
            under_way.exception()
        self._stop_counting()
        taking, self._taking = self._taking, None
        if taking is None:
            return
        if taking.header.size <= INLINE_LIMIT:
            taking.spool.discard()
        else:
            await asyncio.to_thread(taking.spool.discard)

    async def _find_room(self, size: int) -> None:
        """Count a large block from its first byte on, or refuse it before it fills the disk."""
        self._counted = size
        self._arriving.begin(self._arrival.source, size)
        try:
            await self._store.read(self._check_room)
        except InvalidBlock as error:
            self._error = error
            await self.discard()
        except BaseException:
            self._stop_counting()
            raise

    def _stop_counting(self) -> None:
        self._arriving.end(self._arrival.source, self._counted)
        self._counted = 0

    def _check_room(self, view: ReadView) -> None:
        """Check that all that is on its way has room; a block that is here needs none."""
        if view.entry(BlockType.DATA, self._key) is None:
            check_data_room(view, self._key, 0, self._arrival, self._limits, self._arriving)

    async def _chunk_done(self) -> None:
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            await under_way

    async def _finish(self, admit: AdmitData) -> Verdict:
        await self._chunk_done()
        taking = self._taking
        if self._error is not None or taking is None:
            raise self._error or InvalidBlock(Refusal.INTERNAL, "a data block finished twice")
        if taking.header.size <= INLINE_LIMIT:
            entry = taking.entry(self._key, self._arrival)
        else:
            entry = await asyncio.to_thread(taking.entry, self._key, self._arrival)
        given = Decision(self._arrival, self._clock(), self._limits, self._partnership)
        verdict = await self._store.write(lambda view: admit(view, entry, given))
        if not self._arrival.replicated:
            self._partnership.wake()
            await self._partnership.has_all((entry.digest,))
        return verdict


class _Taking:
    """What hashes, weighs and spools the bytes; used by one thread at a time."""

    def __init__(self, header: DataHeader, spool: DataSpool) -> None:
        self.header = header
        self.spool = spool
        self._check = StampCheck(header.stamp)
        self._check.update(data_challenge_prefix(header.date))

    def take(self, chunk: bytes) -> None:
        self.spool.write(chunk)
        self._check.update(chunk)

    def entry(self, key: BlockKey, arrival: Arrival) -> StoredEntry:
        """Check stamp and key, bring large data to stable storage, and return its entry."""
        bits, nonces = self._check.bits(), len(self.header.stamp.nonces)
        check_stamp(bits, nonces, BLOCK_POLICY[BlockType.DATA].server_stamp)
        found = self.spool.key()
        if found != key:
            raise InvalidBlock(Refusal.KEY, f"its bytes belong under {found}")
        return StoredEntry(
            type=BlockType.DATA,
            key=key,
            identity=b"",
            date=self.header.date,
            header=join_lines(self.header.lines),
            digest=data_digest(self.header, key),
            stamp_bits=bits,
            poster=arrival.poster,
            data=self.spool.finish(),
            source=arrival.source,
        )
