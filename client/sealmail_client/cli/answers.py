"""``sealmail reply`` and ``forward``: what one does with a mail after reading it."""

import secrets
from dataclasses import replace
from pathlib import Path

import click

from sealmail_client.answering import (
    forward_subject,
    passed_on,
    readers_of_reply,
    reply_subject,
    require_signed,
    with_forwarded_text,
    with_quote,
)
from sealmail_client.cli.composing import (
    Content,
    Reader,
    Spending,
    dispatch,
    html_of,
    recipient_options,
    spending_options,
    text_options,
    typed_readers,
    written,
)
from sealmail_client.cli.program import desk_of, json_option
from sealmail_client.errors import CannotSeal
from sealmail_client.headers import Header
from sealmail_client.message_zip import open_letter
from sealmail_pow import Difficulty
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.keys import KeyId


@click.command()
@click.argument("number", type=int)
@click.option("--all", "everybody", is_flag=True, help="Answer everybody in To and Cc too.")
@click.option("--quote", is_flag=True, help="Put the text that is answered below yours.")
@text_options
@spending_options
@json_option
@click.pass_context
def reply(
    context: click.Context,
    number: int,
    everybody: bool,
    quote: bool,
    text: str | None,
    html_file: Path | None,
    attachments: tuple[Path, ...],
    max_price: Difficulty | None,
    yes: bool,
    throttle: int | None,
    as_json: bool,
) -> None:
    """Answer mail NUMBER: to the key that signed it, whatever address it names."""
    with desk_of(context) as desk:
        mail = desk.folders.one(number)
        require_signed(mail)
        letter = open_letter(mail.zip_file)
        header = letter.header
        chosen = readers_of_reply(header, desk.settings.key_id, everybody=everybody)
        if not chosen:
            raise CannotSeal(f"mail {number} names nobody but you: there is nobody to answer")
        readers = tuple(
            Reader(key_id, place, _servers(header, key_id)) for key_id, place in chosen.items()
        )
        body = written(text)
        content = Content(
            subject=reply_subject(header.subject),
            text=with_quote(body, letter) if quote else body,
            html=html_of(html_file),
            attachments=attachments,
            reply_thread_id=header.unique_id,
        )
        dispatch(desk, readers, content, Spending(max_price, yes, throttle), as_json)


@click.command()
@click.argument("number", type=int)
@recipient_options
@click.option(
    "--with-signature",
    is_flag=True,
    help="The whole mail as it was signed, so that its writer's signature can be checked.",
)
@text_options
@spending_options
@json_option
@click.pass_context
def forward(
    context: click.Context,
    number: int,
    to: tuple[str | KeyId, ...],
    key_ids: tuple[KeyId, ...],
    cc: tuple[str | KeyId, ...],
    bcc: tuple[str | KeyId, ...],
    servers: tuple[ServerAddress, ...],
    with_signature: bool,
    text: str | None,
    html_file: Path | None,
    attachments: tuple[Path, ...],
    max_price: Difficulty | None,
    yes: bool,
    throttle: int | None,
    as_json: bool,
) -> None:
    """Pass mail NUMBER on, with its text quoted and its attachments.

    With --with-signature it goes along unchanged: whom it names, and all that is attached, are
    seen by whom you send it to.
    """
    readers = typed_readers(to, key_ids, cc, bcc, servers)
    with desk_of(context) as desk:
        mail = desk.folders.one(number)
        letter = open_letter(mail.zip_file)
        forwarded = passed_on(mail, secrets.token_hex(20) if with_signature else None)
        content = Content(
            subject=forward_subject(letter.header.subject),
            text=written(text),
            html=html_of(html_file),
            attachments=attachments,
            forwarded=forwarded,
        )
        if not with_signature:
            content = replace(content, text=with_forwarded_text(content.text, letter))
        dispatch(desk, readers, content, Spending(max_price, yes, throttle), as_json)


def _servers(header: Header, key_id: KeyId) -> tuple[ServerAddress, ...]:
    """Return where the mail says that a key is announced."""
    if key_id == header.sender:
        transport = header.sender_transport
    else:
        named = header.recipient(key_id)
        transport = None if named is None else named.transport
    return () if transport is None else tuple(transport.servers)
