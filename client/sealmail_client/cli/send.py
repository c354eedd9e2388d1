"""``sealmail send``: write to somebody."""

import asyncio
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from sealmail_client.addressing import Addressing
from sealmail_client.cli.outbox import message_row, require_sent, tell_messages
from sealmail_client.cli.program import desk_of, json_option, show, tell_doubts
from sealmail_client.cli.values import ADDRESS, KEY_ID, SERVER
from sealmail_client.desk import Desk
from sealmail_client.drafts import Draft
from sealmail_client.outbox import OutgoingMessage
from sealmail_client.presence import stay_findable
from sealmail_client.sending import Sender
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.fields import is_line
from sealmail_protocol.keys import KeyId


@click.command()
@click.option("--to", "to", type=ADDRESS, multiple=True, help="An address; may be repeated.")
@click.option(
    "--key",
    "key_ids",
    type=KEY_ID,
    multiple=True,
    help="The key id of a recipient, whatever address it claims; may be repeated.",
)
@click.option(
    "--server",
    "servers",
    type=SERVER,
    multiple=True,
    help="Where to look up keys that are not known yet, each one if repeated; without it, the "
    "home server.",
)
@click.option("--subject", default="", help="The subject line.")
@click.option("--message", "text", help="The text; without it, it is read from standard input.")
@click.option(
    "--attach",
    "attachments",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
    help="A file to go with it; may be repeated.",
)
@json_option
@click.pass_context
def send(
    context: click.Context,
    to: tuple[str, ...],
    key_ids: tuple[KeyId, ...],
    servers: tuple[ServerAddress, ...],
    subject: str,
    text: str | None,
    attachments: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Seal a message for its recipients and send it to their servers."""
    if not to and not key_ids:
        raise click.UsageError("say to whom: --to ADDRESS or --key KEYID")
    if not is_line(subject):
        raise click.BadParameter("a subject is one line", param_hint="--subject")
    try:
        body = text if text is not None else sys.stdin.read()
        (subject + body).encode()
    except UnicodeError:
        raise click.BadParameter("subject and text must be UTF-8") from None
    with desk_of(context) as desk:
        files = tuple(path.absolute() for path in attachments)
        message = asyncio.run(_send(desk, to, key_ids, servers, subject, body, files))
        show(message_row(message), as_json, lambda: tell_messages((message,)))
    require_sent((message,))


async def _send(
    desk: Desk,
    to: Sequence[str],
    key_ids: Sequence[KeyId],
    servers: Sequence[ServerAddress],
    subject: str,
    text: str,
    attachments: tuple[Path, ...],
) -> OutgoingMessage:
    desk.require_valid_key()
    addressing = Addressing(desk)
    found = {}
    for address in to:
        addressee = await addressing.addressee(address, servers)
        found[addressee.key_id] = addressee
    for key_id in key_ids:
        found[key_id] = await addressing.addressee_by_key(key_id, servers)
    tell_doubts((*addressing.doubts, *await stay_findable(desk)))
    draft = Draft(secrets.token_hex(20), subject, text, tuple(found.values()), attachments)
    number = desk.outbox.add(draft, desk.clock())
    return await Sender(desk).advance(number)
