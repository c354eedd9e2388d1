"""``sealmail list``, ``read`` and ``save``: mail that is filed."""

from collections.abc import Sequence
from pathlib import Path

import click

from sealmail_client.cli.program import desk_of, json_option, readable, show
from sealmail_client.folders import FiledMail, Folder, SignatureState
from sealmail_client.html_text import text_of_html
from sealmail_client.message_zip import OpenedLetter, open_letter
from sealmail_protocol.dates import format_date

_SIGNATURE_TEXTS = {
    SignatureState.VALID: "valid",
    SignatureState.INVALID: "NOT VALID",
    SignatureState.UNKNOWN_KEY: "NOT CHECKED: the sender's key is not known",
}


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
            lambda: click.echo(mail_table(mails) or f"nothing in {folder}"),
        )


@click.command()
@click.argument("number", type=int)
@json_option
@click.pass_context
def read(context: click.Context, number: int, as_json: bool) -> None:
    """Show mail NUMBER as text, with what is known of its signature."""
    with desk_of(context, alone=False) as desk:
        mail = desk.folders.one(number)
        letter = open_letter(mail.zip_file)
        standing = desk.correspondents.standing(mail.envelope.sender, mail.envelope.sender_key)
        content = {
            **mail_row(mail),
            "sender_standing": standing,
            "text": _text(letter),
            "attachments": [{"name": one.name, "size": one.size} for one in letter.attachments],
        }
        show(content, as_json, lambda: _tell(mail, letter, standing))
        desk.folders.mark_read(number)


@click.command()
@click.argument("number", type=int)
@click.argument(
    "directory", type=click.Path(exists=True, file_okay=False, path_type=Path), default="."
)
@click.pass_context
def save(context: click.Context, number: int, directory: Path) -> None:
    """Save the attachments of mail NUMBER into DIRECTORY; no file there is overwritten."""
    with desk_of(context, alone=False) as desk:
        letter = open_letter(desk.folders.one(number).zip_file)
        for attachment in letter.attachments:
            click.echo(letter.save_attachment(attachment.name, directory))


def mail_row(mail: FiledMail) -> dict[str, object]:
    """Return a mail as scripts see it."""
    envelope = mail.envelope
    return {
        "number": mail.number,
        "folder": str(envelope.folder),
        "from": envelope.sender,
        "sender_key": envelope.sender_key.hex,
        "to": list(envelope.recipients),
        "subject": envelope.subject,
        "date": format_date(envelope.date),
        "signature": str(envelope.signature),
        "remark": envelope.remark,
        "checked": format_date(envelope.checked),
        "unread": mail.unread,
    }


def mail_table(mails: Sequence[FiledMail]) -> str:
    """Return a line for each mail, for people."""
    return "\n".join(map(_line, mails))


def _line(mail: FiledMail) -> str:
    envelope = mail.envelope
    people = envelope.sender if envelope.folder is Folder.INBOX else ", ".join(envelope.recipients)
    mark = "*" if mail.unread else " "
    doubt = "  [doubtful: read its remark]" if envelope.remark else ""
    if envelope.signature is not SignatureState.VALID:
        doubt = "  [signature not valid]"
    date = envelope.date.strftime("%Y-%m-%d %H:%M")
    subject = readable(envelope.subject) or "(no subject)"
    return f"{mail.number:>4} {mark} {date}  {readable(people)}  {subject}{doubt}"


def _tell(mail: FiledMail, letter: OpenedLetter, standing: str) -> None:
    envelope = mail.envelope
    signature = _SIGNATURE_TEXTS[envelope.signature]
    remark = f" ({readable(envelope.remark)})" if envelope.remark else ""
    for name, value in (
        ("From", f"{readable(envelope.sender)} {envelope.sender_key} ({standing})"),
        *(("To", readable(recipient)) for recipient in envelope.recipients),
        ("Date", format_date(envelope.date)),
        ("Subject", readable(envelope.subject)),
        ("Signature", f"{signature}{remark}, checked {format_date(envelope.checked)}"),
    ):
        click.echo(f"{name}: {value}")
    for attachment in letter.attachments:
        click.echo(f"Attachment: {readable(attachment.name)} ({attachment.size} bytes)")
    click.echo(f"\n{readable(_text(letter))}")


def _text(letter: OpenedLetter) -> str:
    """Return the text of a letter; one that has only HTML is shown without its marks."""
    if letter.text is not None:
        return letter.text
    return text_of_html(letter.html) if letter.html is not None else ""
