"""Telling the partner what became of rows: queued by the work that changes them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from sealmail_server.outgoing.told import ROW_KINDS, waits
from sealmail_server.partnership import IS_ORIGINAL, Partnership
from sealmail_store import BlockStore, QueueKind, QueueRow, QueueState, ReadView, WriteView


def tell_again(view: WriteView, row: QueueRow, now: datetime) -> None:
    """Queue all that is known of a block for a partner that may have lost it or be new.

    The block goes along if anybody still waits for it.
    """
    about = view.queue.about(row.digest)
    waiting = [each for each in about if each.kind in ROW_KINDS and waits(each)]
    entry = waiting[0].entry if waiting else None
    view.queue.replace(QueueRow(QueueKind.MIRROR, row.digest, now, row.type, row.key, entry))


def lacks_its_block(view: ReadView, row: QueueRow) -> bool:
    """Tell whether a row tells the partner of a delivery that waits, and not the block for it.

    A partner that has not, or no more, what the others of the block left there cannot take it.
    """
    if row.kind != QueueKind.MIRROR or row.entry is not None:
        return False
    about = view.queue.about(row.digest)
    return any(each.kind in ROW_KINDS and waits(each) and each.entry for each in about)


class Teller:
    """Settles rows, and lets the partner know of them while there is one."""

    def __init__(
        self, store: BlockStore, partnership: Partnership, clock: Callable[[], datetime]
    ) -> None:
        self._store = store
        self._partnership = partnership
        self._clock = clock

    def tell(self, view: WriteView, row: QueueRow, now: datetime) -> None:
        """Queue what is known of a block for the partner, in the place of what was to be told.

        The block itself goes along as long as it has not gone and somebody still waits for it,
        and with every new row: the partner keeps a block only while a row of its own waits for it.
        """
        if not self._partnership.paired or view.setting(IS_ORIGINAL) == "yes" or row.key is None:
            return
        about = view.queue.about(row.digest)
        untold = any(each.kind == QueueKind.MIRROR and each.entry for each in about)
        waiting = [each for each in about if each.kind == QueueKind.PROXY and waits(each)]
        # By number: a row that was just queued has its moments more exactly than the store.
        new = any(each.number == row.number for each in waiting)
        entry = waiting[0].entry if waiting and (untold or new) else None
        view.queue.replace(QueueRow(QueueKind.MIRROR, row.digest, now, row.type, row.key, entry))

    def settle(
        self, view: WriteView, number: int, state: QueueState, code: str, now: datetime
    ) -> bool:
        """Keep what became of a row, and tell the partner; whether it was waiting until now."""
        row = view.queue.row(number)
        # What waits for the partner has numbers of the same series, and is never given up.
        if row is None or row.kind not in ROW_KINDS:
            return False
        if not view.queue.settle(number, state, code, now):
            return False
        self.tell(view, replace(row, state=state), now)
        return True

    async def settled(self, number: int, state: QueueState, code: str) -> bool:
        """Settle a row durably."""
        now = self._clock()
        done = await self._store.write(lambda view: self.settle(view, number, state, code, now))
        self._partnership.wake()
        return done

    async def told(self, digests: Sequence[bytes]) -> None:
        """Let the partner be told, before DONE is said if it is to be."""
        self._partnership.wake()
        await self._partnership.has_all(digests)
