"""``sealmail outbox``: how far each message has come, for each recipient."""

import asyncio

import click

from sealmail_client.cli.program import desk_of, json_option, readable, show
from sealmail_client.outbox import OutgoingMessage
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
            asyncio.run(Sender(desk).work(hurry=True))
        messages = desk.outbox.all()
        show([message_row(one) for one in messages], as_json, lambda: tell_messages(messages))


def message_row(message: OutgoingMessage) -> dict[str, object]:
    """Return a message as scripts see it."""
    return {
        "number": message.number,
        "composed": format_date(message.composed),
        "subject": message.draft.subject,
        "recipients": [
            {
                "address": one.address,
                "key_id": one.key_id.hex,
                "state": str(one.stage),
                "reason": one.reason,
                "server": one.server,
                "sent": format_date(one.sent) if one.sent else None,
                "acknowledged": format_date(one.acknowledged) if one.acknowledged else None,
            }
            for one in message.recipients
        ],
    }


def tell_messages(messages: tuple[OutgoingMessage, ...]) -> None:
    """Print messages for people."""
    if not messages:
        click.echo("nothing was sent yet")
    for message in messages:
        click.echo(f"{message.number}  {readable(message.draft.subject) or '(no subject)'}")
        for one in message.recipients:
            reason = f": {readable(one.reason)}" if one.reason else ""
            click.echo(f"     {one.address}  {one.stage}{reason}")
