"""What ``send``, ``reply`` and ``forward`` share: to whom, which text, and off it goes."""

import asyncio
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import click

from sealmail_client.addressing import Addressing
from sealmail_client.cli.outbox import (
    ask_home,
    message_row,
    require_sent,
    require_ways,
    tell_messages,
)
from sealmail_client.cli.program import show, tell_doubts
from sealmail_client.cli.throttling import set_throttle, throttle_option
from sealmail_client.cli.values import KEY_ID, PRICE, SERVER, WHO
from sealmail_client.desk import Desk
from sealmail_client.drafts import Addressee, Draft, ForwardedMail
from sealmail_client.errors import ClientError
from sealmail_client.headers import Place
from sealmail_client.outbox import UNSENT, OutgoingMessage
from sealmail_client.presence import stay_findable
from sealmail_client.quotes import Quote, quote
from sealmail_client.sending import Sender
from sealmail_client.terms import spoken_seconds
from sealmail_client.weighing import require_fit
from sealmail_pow import Difficulty
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.fields import is_line
from sealmail_protocol.keys import KeyId

F = TypeVar("F", bound=Callable[..., Any])

_FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
# A body is read into memory on the other side too, which has the same limit.
_MAX_HTML_BYTES = 32 * 1024 * 1024
# Stamps that take longer than this are asked about first.
_LONG_SECONDS = 60.0


class Stopped(ClientError):
    """The user broke off a mail that is in the outbox already: it is his to leave or to cancel."""

    # What shells say of a program that Ctrl-C has ended.
    exit_code = 130

    def __init__(self, copies: Sequence[OutgoingMessage]) -> None:
        number = copies[0].number
        if any(copy.at(*UNSENT) for copy in copies):
            then = (
                f"stays in the outbox, and the next `sealmail fetch` sends it; "
                f"`sealmail outbox cancel {number}` gives it up"
            )
        else:
            then = "has left already"
        super().__init__(f"stopped: message {number} {then}")


@dataclass(frozen=True, slots=True)
class Spending:
    """What a command may spend: work, patience and bandwidth."""

    max_price: Difficulty | None
    yes: bool
    throttle: int | None


@dataclass(frozen=True, slots=True)
class Reader:
    """Somebody to write to, as typed or as read in a mail, and where his key may be found."""

    who: str | KeyId
    place: Place
    servers: Sequence[ServerAddress] = ()


def options(*decorators: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return one decorator for several options, in this order."""

    def decorate(command: F) -> F:
        for one in reversed(decorators):
            command = one(command)
        return command

    return decorate


recipient_options = options(
    click.option(
        "--to", "to", type=WHO, multiple=True, help="An address or key id; may be repeated."
    ),
    click.option(
        "--key",
        "key_ids",
        type=KEY_ID,
        multiple=True,
        help="The key id of a recipient, whatever address it claims; may be repeated.",
    ),
    click.option("--cc", type=WHO, multiple=True, help="Who gets a copy; may be repeated."),
    click.option(
        "--bcc",
        type=WHO,
        multiple=True,
        help="Who gets a copy without anybody else knowing; may be repeated.",
    ),
    click.option(
        "--server",
        "servers",
        type=SERVER,
        multiple=True,
        help="Where to look up keys that are not known yet, each one if repeated; without it, "
        "your home server and those that DNS names.",
    ),
)
text_options = options(
    click.option(
        "--message", "text", help="The text; without it, it is read from standard input."
    ),
    click.option(
        "--html",
        "html_file",
        type=_FILE,
        help="The same text as HTML, to go beside the plain one.",
    ),
    click.option(
        "--attach",
        "attachments",
        multiple=True,
        type=_FILE,
        help="A file to go with it; may be repeated.",
    ),
)
spending_options = options(
    click.option(
        "--max-price",
        type=PRICE,
        help="Pay nobody more, now or later: bd,BITS,N, or seconds such as 2s. Without it, 12 "
        "bits more than the recipient's price, for a mailbox that fills.",
    ),
    click.option("--yes", is_flag=True, help="Do not ask before stamps that take long."),
    throttle_option,
)


def typed_readers(
    to: Sequence[str | KeyId],
    key_ids: Sequence[KeyId],
    cc: Sequence[str | KeyId],
    bcc: Sequence[str | KeyId],
    servers: Sequence[ServerAddress],
) -> tuple[Reader, ...]:
    """Return whom the options name; nobody is an error of usage."""
    named = ((Place.TO, to), (Place.TO, key_ids), (Place.CC, cc), (Place.BCC, bcc))
    readers = tuple(Reader(who, place, servers) for place, group in named for who in group)
    if not readers:
        raise click.UsageError("say to whom: --to ADDRESS, --key KEYID, --cc or --bcc")
    return readers


def one_line(subject: str) -> str:
    """Return a subject that fits into a header."""
    if not is_line(subject):
        raise click.BadParameter("a subject is one line", param_hint="--subject")
    return subject


def written(text: str | None) -> str:
    """Return the text of the option, else what stands on standard input."""
    try:
        body = text if text is not None else sys.stdin.read()
        body.encode()
    except UnicodeError:
        raise click.BadParameter("the text must be UTF-8") from None
    return body


def html_of(file: Path | None) -> str | None:
    """Return the HTML in a file, if one is named."""
    if file is None:
        return None
    with file.open("rb") as source:
        content = source.read(_MAX_HTML_BYTES + 1)
    if len(content) > _MAX_HTML_BYTES:
        raise click.BadParameter("it is too large for a text: attach it", param_hint="--html")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise click.BadParameter("the HTML must be UTF-8", param_hint="--html") from None


@dataclass(frozen=True, slots=True)
class Content:
    """What is written, before it is known which keys read it."""

    subject: str
    text: str
    html: str | None = None
    attachments: tuple[Path, ...] = ()
    reply_thread_id: str | None = None
    forwarded: ForwardedMail | None = None


def dispatch(
    desk: Desk,
    readers: Sequence[Reader],
    content: Content,
    spending: Spending,
    as_json: bool,
    after: datetime | None = None,
) -> None:
    """Seal and send to all readers, and tell what became of it; ``NotSent`` if not all of it."""
    if after is not None and not desk.settings.has_account:
        raise click.UsageError("--after needs a home server, which holds the mail until then")
    set_throttle(desk, spending.throttle)
    addressees = asyncio.run(_find(desk, readers))
    limits = _agree(quote(addressees, desk), spending)
    draft = _draft(content, addressees)
    require_fit(desk, draft)
    tell_doubts(asyncio.run(stay_findable(desk)))
    try:
        number = _compose(desk, draft, after, limits)
        asyncio.run(_send(desk, number))
    except KeyboardInterrupt:
        copies = _under_way(desk, draft)
        if not copies:
            raise
        raise Stopped(copies) from None
    copies = desk.outbox.copies(number)
    show(message_row(copies), as_json, lambda: tell_messages(copies))
    require_sent(copies)
    require_ways(copies)


async def _find(desk: Desk, readers: Sequence[Reader]) -> tuple[Addressee, ...]:
    desk.require_valid_key()
    addressing = Addressing(desk)
    found: dict[KeyId, Addressee] = {}
    for reader in readers:
        addressee = await _addressee(addressing, reader)
        # Who is named twice is named where more people see it.
        found.setdefault(addressee.key_id, replace(addressee, place=reader.place))
    tell_doubts(addressing.doubts)
    return tuple(found.values())


async def _addressee(addressing: Addressing, reader: Reader) -> Addressee:
    if isinstance(reader.who, KeyId):
        return await addressing.addressee_by_key(reader.who, reader.servers)
    return await addressing.addressee(reader.who, reader.servers)


def _agree(quotes: Sequence[Quote], spending: Spending) -> dict[KeyId, Difficulty]:
    """Tell what it will cost, and return what is paid at most, whatever is asked later.

    A user at a terminal is asked if it is much.
    """
    limits: dict[KeyId, Difficulty] = {}
    for one in quotes:
        limit = limits[one.addressee.key_id] = spending.max_price or one.ceiling
        if spending.max_price is not None:
            one.require_at_most(spending.max_price)
        cost = one.cost
        mostly, nearly_always = spoken_seconds(cost.seconds), spoken_seconds(cost.seconds_90)
        further = (
            ""
            if mostly == nearly_always
            else f", nine times in ten at most {cost.seconds_90:.1f} s"
        )
        asked = f"{one.addressee.address} asks for {one.price}: {mostly}{further}"
        click.echo(f"{asked}; at most {limit} is paid", err=True)
    total = sum(one.cost.seconds_90 for one in quotes)
    askable = not spending.yes and sys.stdin.isatty() and sys.stderr.isatty()
    if askable and total > _LONG_SECONDS:
        click.confirm(f"this may take {total / 60:.0f} minutes; go on?", abort=True, err=True)
    return limits


def _draft(content: Content, addressees: tuple[Addressee, ...]) -> Draft:
    return Draft(
        unique_id=secrets.token_hex(20),
        subject=content.subject,
        text=content.text,
        addressees=addressees,
        attachments=tuple(path.absolute() for path in content.attachments),
        html=content.html,
        reply_thread_id=content.reply_thread_id,
        forwarded=content.forwarded,
    )


def _compose(
    desk: Desk, draft: Draft, after: datetime | None, limits: Mapping[KeyId, Difficulty]
) -> int:
    """Put a mail into the outbox, and return its number; from now on it is on its way."""
    now, delay = desk.clock(), desk.settings.delay_minutes
    held = timedelta(minutes=secrets.SystemRandom().uniform(0, delay))
    return desk.outbox.add(draft, now, now + held if delay else None, after, limits)


def _under_way(desk: Desk, draft: Draft) -> tuple[OutgoingMessage, ...]:
    """Return the copies of a mail that was broken off, if it is in the outbox at all."""
    return tuple(
        message
        for message in desk.outbox.unfinished()
        if message.draft.unique_id == draft.unique_id
    )


async def _send(desk: Desk, number: int) -> None:
    sender = Sender(desk)
    for copy in desk.outbox.copies(number):
        await sender.advance(copy.number)
    await ask_home(desk, sender)
