"""Answering and passing on: to whom, under which subject, and what is quoted."""

from sealmail_client.drafts import ForwardedMail
from sealmail_client.errors import CannotSeal
from sealmail_client.folders import FiledMail, SignatureState
from sealmail_client.headers import Header, Place, Recipient
from sealmail_client.html_text import text_of_html
from sealmail_client.message_zip import OpenedLetter
from sealmail_protocol.dates import format_date
from sealmail_protocol.keys import KeyId

_REPLY, _FORWARD = "Re: ", "Fwd: "
_FORWARD_MARKS = (_FORWARD.strip().casefold(), "fw:")


class NotSigned(CannotSeal):
    """Nobody is known to have written this mail: write to whom you mean with `sealmail send`."""


def shown_text(letter: OpenedLetter) -> str:
    """Return the text of a letter; one that has only HTML is shown without its marks."""
    if letter.text is not None:
        return letter.text
    return text_of_html(letter.html) if letter.html is not None else ""


def require_signed(mail: FiledMail) -> None:
    """Refuse to rely on a signature that is not good."""
    if mail.envelope.signature is not SignatureState.VALID:
        raise NotSigned(
            f"the signature of mail {mail.number} is not valid, so nobody knows whose it is: "
            "write to whom you mean with `sealmail send`"
        )


def readers_of_reply(header: Header, own: KeyId, *, everybody: bool) -> dict[KeyId, Place]:
    """Return who gets an answer: the writer's key, and of a mail of one's own its readers.

    ``everybody`` adds To and Cc. Bcc recipients are left out, and so is oneself.
    """
    readers = {} if header.sender == own else {header.sender: Place.TO}
    for one in header.recipients:
        answered = everybody or header.sender == own
        if one.key_id == own or not answered or one.place is Place.BCC:
            continue
        if one.place is Place.TO or everybody:
            readers.setdefault(one.key_id, one.place)
    return readers


def reply_subject(subject: str) -> str:
    """Return the subject of an answer."""
    return (
        subject if subject.casefold().startswith(_REPLY.strip().casefold()) else _REPLY + subject
    )


def forward_subject(subject: str) -> str:
    """Return the subject of a mail that is passed on."""
    return subject if subject.casefold().startswith(_FORWARD_MARKS) else _FORWARD + subject


def with_quote(text: str, letter: OpenedLetter) -> str:
    """Return an answer with the text that it answers below it."""
    header = letter.header
    head = f"On {format_date(header.date)}, {header.sender_user_id} wrote:"
    return f"{text.rstrip()}\n\n{head}\n{_marked(shown_text(letter))}\n"


def with_forwarded_text(text: str, letter: OpenedLetter) -> str:
    """Return a text with another mail below it, and who wrote that to whom."""
    header = letter.header
    lines = (
        "---------- Forwarded ----------",
        f"From: {header.sender_user_id}",
        *(_person(one) for one in header.recipients if one.place is not Place.BCC),
        f"Date: {format_date(header.date)}",
        f"Subject: {header.subject}",
        "",
        _marked(shown_text(letter)),
        "",
    )
    return f"{text.rstrip()}\n\n" + "\n".join(lines)


def passed_on(mail: FiledMail, new_id: str | None) -> ForwardedMail:
    """Return what goes along: with ``new_id`` the whole mail with its writer's signature."""
    if new_id is not None:
        require_signed(mail)
    return ForwardedMail(mail.zip_file.absolute(), mail.signature_file.absolute(), new_id)


def _person(one: Recipient) -> str:
    return f"{one.place}: {one.user_id}"


def _marked(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.rstrip().splitlines())
