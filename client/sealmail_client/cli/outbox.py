"""``sealmail outbox``: how far each message has come, for each recipient."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import click

from sealmail_client.cli.program import Commands, desk_of, json_option, readable, show, tell_doubts
from sealmail_client.cli.tables import Column, tell_table
from sealmail_client.cli.values import PRICE
from sealmail_client.desk import Desk
from sealmail_client.errors import CannotWrite, ClientError
from sealmail_client.following import follow_queue, something_queued
from sealmail_client.headers import Place
from sealmail_client.ledger import ledger_rows
from sealmail_client.outbox import UNSENT, OutgoingMessage, OutgoingRecipient, Stage
from sealmail_client.profile import ProfileInUse
from sealmail_client.safe_files import create_private
from sealmail_client.sending import Sender
from sealmail_client.servers import LoginRefused
from sealmail_net.errors import NetworkError
from sealmail_pow import Difficulty
from sealmail_protocol.dates import format_date

_COLUMNS = (
    Column("No.", whole=True),
    Column("Subject"),
    Column("Recipient", whole=True),
    Column("State", whole=True),
    Column("Reason"),
)


class NotSent(ClientError):
    """What could not be sent stays in the outbox: `sealmail outbox --retry` tries again."""

    exit_code = 4


@click.group(cls=Commands, invoke_without_command=True)
@click.option("--retry", is_flag=True, help="Try again now what could not be sent before.")
@click.option(
    "--export",
    "export_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the ledger to a new file, as JSON lines for an auditor: times, states, sizes and "
    "key ids, nothing that was written.",
)
@json_option
@click.pass_context
def outbox(context: click.Context, retry: bool, export_file: Path | None, as_json: bool) -> None:
    """Show the messages that were written here and what became of them."""
    if context.invoked_subcommand is not None:
        if retry or export_file is not None or as_json:
            raise click.UsageError(f"put options after {context.invoked_subcommand!r}")
        return
    if not retry:
        _catch_up(context)
    with desk_of(context, alone=retry) as desk:
        if retry:
            desk.require_valid_key()
            asyncio.run(_ask(desk, retry=True))
        messages = desk.outbox.all()
        if export_file is not None:
            _export(messages, export_file)
            return
        show(message_rows(messages), as_json, lambda: tell_messages(messages))
    if retry:
        require_sent(messages)


def _catch_up(context: click.Context) -> None:
    """Ask about what the home server delivers, unless another program works here right now."""
    with desk_of(context, alone=False) as desk:
        if not something_queued(desk):
            return
    try:
        with desk_of(context) as desk:
            asyncio.run(_ask(desk, retry=False))
    except ProfileInUse as error:
        tell_doubts((str(error),))


async def _ask(desk: Desk, *, retry: bool) -> None:
    """Hear what became of what the home server delivers, and send what came back anew."""
    sender = Sender(desk)
    await ask_home(desk, sender)
    await sender.work(hurry=retry)


async def ask_home(desk: Desk, sender: Sender) -> None:
    """Follow mail that the home server delivers; one that is away is a note, no failure."""
    if not something_queued(desk):
        return
    try:
        doubts = await desk.servers.at_home(lambda peer: follow_queue(desk, peer, sender))
    except (NetworkError, LoginRefused) as error:
        doubts = (str(error),)
    tell_doubts(doubts)


def require_sent(messages: Sequence[OutgoingMessage]) -> None:
    """Raise ``NotSent`` if a message was tried in vain; one that is held back was not."""
    tried = [one for one in messages if any(each.tries for each in one.at(*UNSENT))]
    # A mail is known by the number of its first copy.
    unsent = sorted({one.copy_of or one.number for one in tried})
    if unsent:
        raise NotSent(
            f"not sent to everybody yet: message {', '.join(map(str, unsent))}; what waits stays "
            "in the outbox, and `sealmail outbox --retry` tries again"
        )


def require_ways(copies: Sequence[OutgoingMessage]) -> None:
    """Raise ``NotSent`` if a mail has just failed for somebody: nothing tries that again."""
    failed = [one for copy in copies for one in copy.at(Stage.FAILED)]
    if failed:
        raise NotSent("; ".join(f"not sent to {one.address}: {one.reason}" for one in failed))


@outbox.command()
@click.argument("number", type=int)
@json_option
@click.pass_context
def cancel(context: click.Context, number: int, as_json: bool) -> None:
    """Give up message NUMBER for everybody it has not been sent to yet."""
    with desk_of(context) as desk:
        copies = desk.outbox.cancel(number, desk.clock())
        show(message_row(copies), as_json, lambda: tell_messages(copies))


@outbox.command()
@click.argument("number", type=int)
@click.option(
    "--max-price",
    type=PRICE,
    required=True,
    help="What is paid at most from now on: bd,BITS,N, or seconds such as 2s.",
)
@json_option
@click.pass_context
def pay(context: click.Context, number: int, max_price: Difficulty, as_json: bool) -> None:
    """Agree to a higher price for message NUMBER, and send it where that was all it waited for."""
    with desk_of(context) as desk:
        desk.require_valid_key()
        copies = desk.outbox.agree(number, max_price)
        asyncio.run(_send_paid(desk, copies))
        copies = desk.outbox.copies(copies[0].number)
        show(message_row(copies), as_json, lambda: tell_messages(copies))
    require_sent(copies)


async def _send_paid(desk: Desk, copies: Sequence[OutgoingMessage]) -> None:
    sender = Sender(desk)
    await ask_home(desk, sender)
    for copy in copies:
        await sender.advance(copy.number)


def _export(messages: tuple[OutgoingMessage, ...], path: Path) -> None:
    try:
        file = create_private(path)
    except FileExistsError:
        raise CannotWrite(f"{path} is there already: name another file") from None
    with file:
        for row in ledger_rows(messages):
            file.write(json.dumps(row).encode() + b"\n")


def message_rows(messages: Sequence[OutgoingMessage]) -> list[dict[str, object]]:
    """Return messages as scripts see them, the copies of one mail together."""
    return [message_row(copies) for copies in _mails(messages)]


def message_row(copies: Sequence[OutgoingMessage]) -> dict[str, object]:
    """Return one mail as scripts see it, by the number of its first copy."""
    message = copies[0]
    return {
        "number": message.number,
        "composed": format_date(message.composed),
        "subject": message.draft.subject,
        "after": format_date(message.after) if message.after else None,
        "recipients": [
            {
                "address": one.address,
                "key_id": one.key_id.hex,
                "place": str(_place(copy, one)),
                "state": str(one.stage),
                "reason": one.reason,
                "tries": one.tries,
                "next_try": format_date(one.next_try) if one.next_try else None,
                "server": one.server,
                "sent": format_date(one.sent) if one.sent else None,
                "acknowledged": format_date(one.acknowledged) if one.acknowledged else None,
            }
            for copy in copies
            for one in copy.recipients
        ],
    }


def tell_messages(messages: Sequence[OutgoingMessage]) -> None:
    """Print messages for people."""
    lines, rows = [], []
    for copies in _mails(messages):
        number, subject = copies[0].number, readable(copies[0].draft.subject) or "(no subject)"
        lines.append(f"{number}  {subject}")
        head = (str(number), subject)
        for copy in copies:
            for one in copy.recipients:
                recipient, reason = f"{_place(copy, one)}: {one.address}", readable(one.reason)
                waits = one.next_try if one.stage in UNSENT else None
                then = f" (not before {format_date(waits)})" if waits else ""
                lines.append(f"     {recipient}  {one.stage}{reason and ': '}{reason}{then}")
                rows.append((*head, recipient, str(one.stage), f"{reason}{then}".strip()))
                head = ("", "")
    tell_table(_COLUMNS, rows, "\n".join(lines) or "nothing was sent yet")


def _mails(messages: Sequence[OutgoingMessage]) -> list[list[OutgoingMessage]]:
    mails: dict[int, list[OutgoingMessage]] = {}
    for message in messages:
        mails.setdefault(message.copy_of or message.number, []).append(message)
    return list(mails.values())


def _place(copy: OutgoingMessage, recipient: OutgoingRecipient) -> Place:
    return next(one.place for one in copy.draft.addressees if one.key_id == recipient.key_id)
