"""``sealmail send``: write to somebody."""

from pathlib import Path

import click

from sealmail_client.cli.composing import (
    Content,
    Spending,
    dispatch,
    html_of,
    one_line,
    recipient_options,
    spending_options,
    text_options,
    typed_readers,
    written,
)
from sealmail_client.cli.program import desk_of, json_option
from sealmail_pow import Difficulty
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.keys import KeyId


@click.command()
@recipient_options
@click.option("--subject", default="", help="The subject line.")
@text_options
@spending_options
@json_option
@click.pass_context
def send(
    context: click.Context,
    to: tuple[str | KeyId, ...],
    key_ids: tuple[KeyId, ...],
    cc: tuple[str | KeyId, ...],
    bcc: tuple[str | KeyId, ...],
    servers: tuple[ServerAddress, ...],
    subject: str,
    text: str | None,
    html_file: Path | None,
    attachments: tuple[Path, ...],
    max_price: Difficulty | None,
    yes: bool,
    throttle: int | None,
    as_json: bool,
) -> None:
    """Seal a message for its recipients and send it to their servers."""
    readers = typed_readers(to, key_ids, cc, bcc, servers)
    content = Content(one_line(subject), written(text), html_of(html_file), attachments)
    with desk_of(context) as desk:
        dispatch(desk, readers, content, Spending(max_price, yes, throttle), as_json)
