"""What ``send``, ``reply`` and ``forward`` share: to whom, which text, and off it goes."""

import asyncio
import secrets
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import click

from sealmail_client.addressing import Addressing
from sealmail_client.cli.outbox import message_row, tell_messages
from sealmail_client.cli.program import show, tell_doubts
from sealmail_client.cli.values import KEY_ID, SERVER, WHO
from sealmail_client.desk import Desk
from sealmail_client.drafts import Addressee, Draft, ForwardedMail
from sealmail_client.errors import ClientError
from sealmail_client.headers import Place
from sealmail_client.outbox import OutgoingMessage, Stage
from sealmail_client.presence import stay_findable
from sealmail_client.sending import Sender
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.fields import is_line
from sealmail_protocol.keys import KeyId

F = TypeVar("F", bound=Callable[..., Any])

_FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
# A body is read into memory on the other side too, which has the same limit.
_MAX_HTML_BYTES = 32 * 1024 * 1024


class NotSent(ClientError):
    """The message stays in the outbox: `sealmail outbox --retry` tries again."""

    exit_code = 4


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
        help="Where to look up keys that are not known yet, one after the other; without it, the "
        "home server.",
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


def dispatch(desk: Desk, readers: Sequence[Reader], content: Content, as_json: bool) -> None:
    """Seal and send to all readers, and tell what became of it; ``NotSent`` if not all of it."""
    copies = asyncio.run(_dispatch(desk, readers, content))
    show(message_row(copies), as_json, lambda: tell_messages(copies))
    unsent = [one for copy in copies for one in copy.at(*_UNSENT)]
    if unsent:
        raise NotSent(
            f"message {copies[0].number} could not be sent to {len(unsent)} of its recipients; it "
            "stays in the outbox, and `sealmail outbox --retry` tries again"
        )


_UNSENT = (Stage.COMPOSED, Stage.SEALED, Stage.STAMPED)


async def _dispatch(
    desk: Desk, readers: Sequence[Reader], content: Content
) -> tuple[OutgoingMessage, ...]:
    desk.require_valid_key()
    addressing = Addressing(desk)
    found: dict[KeyId, Addressee] = {}
    for reader in readers:
        addressee = await _addressee(addressing, reader)
        # Who is named twice is named where more people see it.
        found.setdefault(addressee.key_id, replace(addressee, place=reader.place))
    tell_doubts((*addressing.doubts, *await stay_findable(desk)))
    draft = Draft(
        unique_id=secrets.token_hex(20),
        subject=content.subject,
        text=content.text,
        addressees=tuple(found.values()),
        attachments=tuple(path.absolute() for path in content.attachments),
        html=content.html,
        reply_thread_id=content.reply_thread_id,
        forwarded=content.forwarded,
    )
    number = desk.outbox.add(draft, desk.clock())
    sender = Sender(desk)
    for copy in desk.outbox.copies(number):
        await sender.advance(copy.number)
    return desk.outbox.copies(number)


async def _addressee(addressing: Addressing, reader: Reader) -> Addressee:
    if isinstance(reader.who, KeyId):
        return await addressing.addressee_by_key(reader.who, reader.servers)
    return await addressing.addressee(reader.who, reader.servers)
