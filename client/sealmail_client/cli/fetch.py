"""``sealmail fetch``: bring new mail home, and send what still waits."""

import asyncio
import json
import random
import signal
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

import click

from sealmail_client.acknowledgments import look_at_old_server, look_for_acknowledgments
from sealmail_client.cli.mail import mail_row, tell_mails
from sealmail_client.cli.program import (
    desk_of,
    json_option,
    readable,
    reader_has_left,
    show,
    tell_doubts,
)
from sealmail_client.cli.throttling import set_throttle, throttle_option
from sealmail_client.desk import Desk
from sealmail_client.folders import FiledMail
from sealmail_client.following import follow_queue
from sealmail_client.inbox import ArrivingMessage, Step
from sealmail_client.passphrases import ask_passphrase
from sealmail_client.posting import Peer
from sealmail_client.presence import stay_findable_at, stay_findable_beside
from sealmail_client.profile import ProfileInUse
from sealmail_client.receiving import Arrivals, Receiver
from sealmail_client.sending import Sender
from sealmail_client.servers import LoginRefused
from sealmail_client.watching import SHORTEST_REST, rest
from sealmail_net.errors import NetworkError
from sealmail_verify import Undecided

_DEFAULT_MINUTES = 5.0
# What another hour may mend; anything else ends the watch.
_PASSING = (NetworkError, Undecided, ProfileInUse, OSError, sqlite3.OperationalError)


@click.command()
@click.argument("numbers", type=int, nargs=-1, metavar="[NUMBER]...")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Ask for all mail again, large, underpaid and refused mail too.",
)
@click.option(
    "--watch",
    type=click.FloatRange(min=0.01, max=1440),
    is_flag=False,
    flag_value=_DEFAULT_MINUTES,
    metavar="[MINUTES]",
    help=f"Go on until Ctrl-C, about every so many minutes; {_DEFAULT_MINUTES:g} if none is said.",
)
@throttle_option
@json_option
@click.pass_context
def fetch(
    context: click.Context,
    numbers: tuple[int, ...],
    everything: bool,
    watch: float | None,
    throttle: int | None,
    as_json: bool,
) -> None:
    """Fetch, open, verify, file and acknowledge new mail.

    NUMBER takes mail that waits because it is large or underpaid, or did not open. What waits in
    the outbox is sent when its time has come, and the own key is published again when it is due.
    """
    order = _Order(everything, numbers, throttle, as_json)
    if watch is None:
        with desk_of(context) as desk:
            order.carry_out(desk)
    else:
        _watch(context, order, timedelta(minutes=watch))


@dataclass(frozen=True, slots=True)
class _Order:
    """What one round is to do, and how it is told."""

    everything: bool
    numbers: tuple[int, ...]
    throttle: int | None
    as_json: bool

    def carry_out(self, desk: Desk, *, quiet: bool = False) -> None:
        """Do one round; ``quiet`` tells only what is new."""
        set_throttle(desk, self.throttle)
        arrivals = asyncio.run(_fetch(desk, self.everything, self.numbers))
        filed = tuple(desk.folders.one(number) for number in arrivals.filed)
        rows = _rows(arrivals, filed)
        if not quiet:
            show(rows, self.as_json, lambda: _tell(arrivals, filed))
        elif filed and self.as_json:
            click.echo(json.dumps(rows))
        elif filed:
            tell_mails(filed, "")
        tell_doubts(arrivals.doubts)


@dataclass(slots=True)
class _Remembered:
    """A passphrase that is asked for once, however often the home is opened."""

    ask: Callable[[], str] = ask_passphrase
    known: str | None = field(default=None, repr=False)

    def __call__(self) -> str:
        if self.known is None:
            self.known = self.ask()
        return self.known


def _watch(context: click.Context, order: _Order, interval: timedelta) -> None:
    """Repeat rounds; the home is locked during each, and free for other commands between."""
    dice, ask = random.SystemRandom(), _Remembered()
    # Both signals end a round as Ctrl-C does: every step may be repeated.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        while True:
            pause = interval
            try:
                with desk_of(context, ask=ask) as desk:
                    order.carry_out(desk, quiet=True)
                    # What was wished for by number is a wish for one round that is whole.
                    order = replace(order, everything=False, numbers=())
                    pause = rest(interval, desk.outbox.unfinished(), desk.clock(), dice)
            except ProfileInUse:
                pause = SHORTEST_REST
            except _PASSING as error:
                if reader_has_left(error):
                    raise
                tell_doubts((str(error),))
            time.sleep(pause.total_seconds())
    except KeyboardInterrupt:
        click.echo("stopped", err=True)


async def _fetch(desk: Desk, everything: bool, numbers: tuple[int, ...]) -> Arrivals:
    receiver, sender = Receiver(desk), Sender(desk)

    async def errand(peer: Peer) -> Arrivals:
        doubts = await stay_findable_at(desk, peer)
        arrivals = await receiver.visit(peer, everything=everything, wanted=numbers)
        await look_for_acknowledgments(desk, peer)
        returned = await follow_queue(desk, peer, sender)
        return replace(arrivals, doubts=doubts + arrivals.doubts + returned)

    try:
        arrivals = await desk.servers.at_home(errand)
    except (NetworkError, LoginRefused):
        # Other servers may be up when the home server is not.
        tell_doubts(await _work_beside(desk, sender))
        raise
    doubts = await _work_beside(desk, sender)
    return replace(arrivals, doubts=arrivals.doubts + doubts)


async def _work_beside(desk: Desk, sender: Sender) -> tuple[str, ...]:
    """Do what needs other servers than the home server; return why one did not serve."""
    doubts = await stay_findable_beside(desk)
    doubts += await look_at_old_server(desk)
    await sender.work()
    return doubts


def _rows(arrivals: Arrivals, filed: tuple[FiledMail, ...]) -> dict[str, object]:
    return {
        "filed": [mail_row(mail) for mail in filed],
        "waiting": [_waiting_row(one) for one in arrivals.waiting],
        "refused": [_waiting_row(one) for one in arrivals.refused],
    }


def _waiting_row(message: ArrivingMessage) -> dict[str, object]:
    return {
        "number": message.number,
        "date": message.announcement.date.isoformat(),
        "blocks": len(message.announcement.data_blocks),
        "bits": message.bits,
        "token": message.announcement.token is not None,
        "state": str(message.step),
        "reason": message.reason,
    }


def _tell(arrivals: Arrivals, filed: Sequence[FiledMail]) -> None:
    tell_mails(filed, "no new mail")
    for message in arrivals.waiting:
        click.echo(f"waiting: {_described(message)}")
    for message in arrivals.refused:
        click.echo(f"refused: {_described(message)}")


def _described(message: ArrivingMessage) -> str:
    announcement, number = message.announcement, message.number
    about = f"a mail of {announcement.date.isoformat()}, {len(announcement.data_blocks)} blocks"
    takes = f"`sealmail fetch {number}` takes it"
    if message.step is Step.UNDERPAID:
        token = " and a token that is not honoured" if announcement.token else ""
        return f"{about}, stamped with {message.bits} bits only{token}; {takes}"
    if message.step is Step.LARGE:
        return f"{about}: {readable(message.reason)}; {takes}"
    at_once = f"; `sealmail fetch {number}` tries at once" if message.tries > 1 else ""
    return f"{about}: {readable(message.reason)}{at_once}"
