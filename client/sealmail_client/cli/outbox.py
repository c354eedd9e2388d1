"""``sealmail outbox``: how far each message has come, for each recipient."""

import asyncio
from collections.abc import Sequence

import click

from sealmail_client.cli.program import desk_of, json_option, readable, show
from sealmail_client.headers import Place
from sealmail_client.outbox import OutgoingMessage, OutgoingRecipient
from sealmail_client.sending import Sender
from sealmail_protocol.dates import format_date


@click.command()
@click.option("--retry", is_flag=True, help="Try again now what could not be sent before.")
@json_option
@click.pass_context
def outbox(context: click.Context, retry: bool, as_json: bool) -> None:
    """Show the messages that were written here and what became of them."""
    with desk_of(context, alone=retry) as desk:
        if retry:
            asyncio.run(Sender(desk).work())
        messages = desk.outbox.all()
        show(message_rows(messages), as_json, lambda: tell_messages(messages))


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
        "recipients": [
            {
                "address": one.address,
                "key_id": one.key_id.hex,
                "place": str(_place(copy, one)),
                "state": str(one.stage),
                "reason": one.reason,
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
    if not messages:
        click.echo("nothing was sent yet")
    for copies in _mails(messages):
        subject = readable(copies[0].draft.subject) or "(no subject)"
        click.echo(f"{copies[0].number}  {subject}")
        for copy in copies:
            for one in copy.recipients:
                reason = f": {readable(one.reason)}" if one.reason else ""
                click.echo(f"     {_place(copy, one)}: {one.address}  {one.stage}{reason}")


def _mails(messages: Sequence[OutgoingMessage]) -> list[list[OutgoingMessage]]:
    mails: dict[int, list[OutgoingMessage]] = {}
    for message in messages:
        mails.setdefault(message.copy_of or message.number, []).append(message)
    return list(mails.values())


def _place(copy: OutgoingMessage, recipient: OutgoingRecipient) -> Place:
    return next(one.place for one in copy.draft.addressees if one.key_id == recipient.key_id)
