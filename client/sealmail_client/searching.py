"""Finding filed mail by words: in its subject, its people, its text and its attachments' names."""

from sealmail_client.errors import BadMessage
from sealmail_client.folders import FiledMail, Folder, Folders
from sealmail_client.html_text import text_of_html
from sealmail_client.message_zip import open_letter


def search(folders: Folders, text: str, folder: Folder | None = None) -> tuple[FiledMail, ...]:
    """Return the mail that has every word of ``text`` somewhere, whatever their case."""
    words = text.casefold().split()
    return tuple(mail for mail in folders.all(folder) if _has_all(mail, words))


def _has_all(mail: FiledMail, words: list[str]) -> bool:
    envelope = mail.envelope
    people = (envelope.sender, envelope.sender_key.hex, *envelope.recipients)
    outside = "\n".join((envelope.subject, *people)).casefold()
    missing = [word for word in words if word not in outside]
    # The ZIP is opened only for words that the envelope has not.
    return not missing or _inside_has(mail, missing)


def _inside_has(mail: FiledMail, words: list[str]) -> bool:
    try:
        letter = open_letter(mail.zip_file)
    except (BadMessage, OSError):
        return False
    body = letter.text
    if body is None:
        body = "" if letter.html is None else text_of_html(letter.html)
    inside = "\n".join((body, *(one.name for one in letter.attachments))).casefold()
    return all(word in inside for word in words)
