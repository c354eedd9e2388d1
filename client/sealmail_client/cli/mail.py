"""``sealmail list``, ``read`` and ``save``: mail that is filed."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from sealmail_client.answering import shown_text
from sealmail_client.cli.program import desk_of, json_option, readable, show
from sealmail_client.cli.tables import Column, tell_table
from sealmail_client.correspondents import Correspondents
from sealmail_client.errors import CannotWrite, ClientError
from sealmail_client.folders import FiledMail, Folder, Folders, SignatureState
from sealmail_client.headers import Place
from sealmail_client.html_text import harmless_page
from sealmail_client.key_changes import KnownKey, marks_of, standing_of
from sealmail_client.message_zip import OpenedLetter, open_letter
from sealmail_client.safe_files import create_private
from sealmail_protocol.dates import format_date

_SIGNATURE_TEXTS = {
    SignatureState.VALID: "valid",
    SignatureState.INVALID: "NOT VALID",
    SignatureState.UNKNOWN_KEY: "NOT CHECKED: the sender's key is not known",
}


_COLUMNS = (
    Column("No.", whole=True),
    Column("", whole=True),
    Column("Date", whole=True),
    Column("People"),
    Column("Subject"),
    Column("Doubt"),
)


class NoHtml(ClientError):
    """The mail is plain text: `sealmail read` shows it."""

    exit_code = 18


@click.command(name="list")
@click.option(
    "--folder",
    type=click.Choice([str(folder) for folder in Folder]),
    default=str(Folder.INBOX),
    show_default=True,
    help="Which folder to list.",
)
@json_option
@click.pass_context
def list_mail(context: click.Context, folder: str, as_json: bool) -> None:
    """List the mail in a folder."""
    with desk_of(context, alone=False) as desk:
        mails = desk.folders.all(Folder(folder))
        show(
            [mail_row(mail) for mail in mails],
            as_json,
            lambda: tell_mails(mails, f"nothing in {folder}"),
        )


@click.command()
@click.argument("number", type=int)
@click.option(
    "--html",
    "html_target",
    metavar="FILE",
    help="Write the HTML of the mail, and nothing else, to a new FILE; - is standard output.",
)
@json_option
@click.pass_context
def read(context: click.Context, number: int, html_target: str | None, as_json: bool) -> None:
    """Show mail NUMBER as text, with what is known of its signature.

    HTML is written as it came, with a rule at its head by which a browser runs no script in it
    and loads nothing from elsewhere.
    """
    with desk_of(context, alone=False) as desk:
        mail = desk.folders.one(number)
        letter = open_letter(mail.zip_file)
        if html_target is not None:
            _write_html(number, letter, html_target)
            desk.folders.mark_read(number)
            return
        known = _sender(desk.correspondents, mail)
        original = _original(desk.folders, mail)
        content = {
            **mail_row(mail),
            "sender_standing": standing_of(known),
            "sender_marks": marks_of(known),
            "to": _people(letter, Place.TO),
            "cc": _people(letter, Place.CC),
            "reply_thread_id": letter.header.reply_thread_id,
            "text": shown_text(letter),
            "html": letter.html is not None,
            "forwarded": None
            if original is None
            else {
                **mail_row(original),
                "sender_marks": marks_of(_sender(desk.correspondents, original)),
            },
            "attachments": [{"name": one.name, "size": one.size} for one in letter.attachments],
        }
        show(content, as_json, lambda: _tell(mail, letter, desk.correspondents, original))
        desk.folders.mark_read(number)


@click.command()
@click.argument("number", type=int)
@click.argument(
    "directory", type=click.Path(exists=True, file_okay=False, path_type=Path), default="."
)
@json_option
@click.pass_context
def save(context: click.Context, number: int, directory: Path, as_json: bool) -> None:
    """Save the attachments of mail NUMBER into DIRECTORY; no file there is overwritten."""
    with desk_of(context, alone=False) as desk:
        letter = open_letter(desk.folders.one(number).zip_file)
        saved: list[str] = []
        for attachment in letter.attachments:
            path = letter.save_attachment(attachment.name, directory)
            saved.append(str(path))
            if not as_json:
                # At once: a large one takes a while, and another may fail.
                click.echo(path)
        show(saved, as_json, lambda: None)


def mail_row(mail: FiledMail) -> dict[str, object]:
    """Return a mail as scripts see it."""
    envelope = mail.envelope
    return {
        "number": mail.number,
        "folder": str(envelope.folder),
        "from": envelope.sender,
        "sender_key": envelope.sender_key.hex,
        "to": list(envelope.recipients),
        "bcc": list(envelope.hidden),
        "subject": envelope.subject,
        "date": format_date(envelope.date),
        "signature": str(envelope.signature),
        "remark": envelope.remark,
        "signer": envelope.signer.hex if envelope.signer else None,
        "signed_at": format_date(envelope.signed_at) if envelope.signed_at else None,
        "checked": format_date(envelope.checked),
        "unread": mail.unread,
        "original": envelope.original,
    }


def tell_mails(mails: Sequence[FiledMail], nothing: str) -> None:
    """List mail for people; ``nothing`` is said if there is none."""
    rows = [_cells(mail) for mail in mails]
    lines = "\n".join(map(_line, rows))
    tell_table(_COLUMNS, rows, lines or nothing)


def _cells(mail: FiledMail) -> tuple[str, ...]:
    envelope = mail.envelope
    people = envelope.sender
    if envelope.folder is Folder.SENT:
        people = ", ".join((*envelope.recipients, *envelope.hidden))
    doubt = "doubtful: read its remark" if envelope.remark else ""
    if envelope.signature is not SignatureState.VALID:
        doubt = "signature not valid"
    return (
        str(mail.number),
        "*" if mail.unread else " ",
        envelope.date.strftime("%Y-%m-%d %H:%M"),
        readable(people),
        readable(envelope.subject) or "(no subject)",
        doubt,
    )


def _line(cells: Sequence[str]) -> str:
    number, mark, date, people, subject, doubt = cells
    return f"{number:>4} {mark} {date}  {people}  {subject}{f'  [{doubt}]' if doubt else ''}"


def _tell(
    mail: FiledMail, letter: OpenedLetter, book: Correspondents, original: FiledMail | None
) -> None:
    envelope = mail.envelope
    for name, value in (
        ("From", _named_sender(mail, book)),
        *(("To", readable(one)) for one in _people(letter, Place.TO)),
        *(("Cc", readable(one)) for one in _people(letter, Place.CC)),
        *(("Bcc", readable(one)) for one in envelope.hidden),
        ("Date", format_date(envelope.date)),
        ("Subject", readable(envelope.subject)),
        ("Signature", f"{_signature(mail)}, checked {format_date(envelope.checked)}"),
    ):
        click.echo(f"{name}: {value}")
    for attachment in letter.attachments:
        click.echo(f"Attachment: {readable(attachment.name)} ({attachment.size} bytes)")
    if letter.header.forwarded_id is not None:
        click.echo(f"Forwarded: {_told_original(original, book)}")
    if letter.html is not None:
        click.echo("Also as HTML: `sealmail read --html`")
    click.echo(f"\n{readable(shown_text(letter))}")


def _signature(mail: FiledMail) -> str:
    remark = f" ({readable(mail.envelope.remark)})" if mail.envelope.remark else ""
    return f"{_SIGNATURE_TEXTS[mail.envelope.signature]}{remark}"


def _sender(book: Correspondents, mail: FiledMail) -> list[KnownKey]:
    """Return what is known of the sender's key as that of the sender."""
    known = book.entry(mail.envelope.sender, mail.envelope.sender_key)
    return [] if known is None else [known]


def _named_sender(mail: FiledMail, book: Correspondents) -> str:
    envelope = mail.envelope
    standing = standing_of(_sender(book, mail))
    return f"{readable(envelope.sender)} {envelope.sender_key} ({standing})"


def _told_original(original: FiledMail | None, book: Correspondents) -> str:
    if original is None:
        return "an original that could not be opened"
    sender = _named_sender(original, book)
    return f"mail {original.number} of {sender}, signature {_signature(original)}"


def _original(folders: Folders, mail: FiledMail) -> FiledMail | None:
    number = mail.envelope.original
    return None if number is None else folders.one(number)


def _people(letter: OpenedLetter, place: Place) -> list[str]:
    return [one.user_id for one in letter.header.recipients if one.place is place]


def _write_html(number: int, letter: OpenedLetter, target: str) -> None:
    if letter.html is None:
        raise NoHtml(f"mail {number} has no HTML: `sealmail read {number}` shows its text")
    content = harmless_page(letter.html).encode(errors="replace")
    if target == "-":
        # Bytes steer a terminal; a pipe takes them as they are.
        terminal = sys.stdout.isatty()
        click.echo(readable(content.decode()) if terminal else content, nl=False)
        return
    try:
        with create_private(Path(target)) as file:
            file.write(content)
    except FileExistsError:
        raise CannotWrite(f"{target} is there already: name another file") from None
