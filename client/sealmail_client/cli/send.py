"""``sealmail send``: write to somebody."""

from collections.abc import Callable
from datetime import datetime, timedelta
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
from sealmail_client.cli.values import MOMENT
from sealmail_pow import Difficulty
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.keys import KeyId

# No server holds mail for longer; it would be near its end when it arrives.
MAX_AFTER = timedelta(days=3)


@click.command()
@recipient_options
@click.option("--subject", default="", help="The subject line.")
@text_options
@spending_options
@click.option(
    "--after",
    type=MOMENT,
    metavar="WHEN",
    help="Let your home server deliver it not before then: 90m, 8h or 2d from now, or a time such "
    "as 2026-05-01T18:00 on your clock; at most three days ahead.",
)
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
    after: Callable[[datetime], datetime] | None,
    as_json: bool,
) -> None:
    """Seal a message for its recipients and send it to their servers."""
    readers = typed_readers(to, key_ids, cc, bcc, servers)
    content = Content(one_line(subject), written(text), html_of(html_file), attachments)
    with desk_of(context) as desk:
        moment = None if after is None else _within_reach(after(desk.clock()), desk.clock())
        dispatch(desk, readers, content, Spending(max_price, yes, throttle), as_json, moment)


def _within_reach(moment: datetime, now: datetime) -> datetime:
    if moment - now > MAX_AFTER:
        raise click.BadParameter("at most three days ahead", param_hint="--after")
    return moment
