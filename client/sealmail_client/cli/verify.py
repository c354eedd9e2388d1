"""``sealmail key verify``: a fingerprint to be compared with its owner, by ear or by eye."""

from collections.abc import Sequence

import click

from sealmail_client.addressing import KeyNotFound
from sealmail_client.cli.program import desk_of, json_option, show
from sealmail_client.cli.values import KEY_ID, WHO, Parsed
from sealmail_client.correspondents import Correspondents, KnownKey
from sealmail_client.desk import Desk
from sealmail_client.errors import ClientError
from sealmail_client.fingerprint_code import code_text, terminal_code
from sealmail_client.fingerprint_words import (
    fingerprint_words,
    hex_groups,
    parse_words,
    word_rows,
)
from sealmail_client.key_changes import marks_of, standing_of
from sealmail_protocol.keys import KeyId


class WrongFingerprint(ClientError):
    """The owner has another key than the one that was found: do not write to that one."""

    exit_code = 30


@click.command()
@click.argument("who", type=WHO, required=False)
@click.option(
    "--words", "read_out", type=Parsed("WORDS", parse_words), help="The words the owner read out."
)
@click.option("--fingerprint", type=KEY_ID, help="The hex digits the owner read out.")
@json_option
@click.pass_context
def verify(
    context: click.Context,
    who: str | KeyId | None,
    read_out: KeyId | None,
    fingerprint: KeyId | None,
    as_json: bool,
) -> None:
    """Print a fingerprint as words and QR code, or compare it with what its owner read out.

    Without WHO it is your own, for you to read to others. With --words or --fingerprint, the
    key is marked as verified if it is the same.
    """
    told = read_out or fingerprint
    if told is not None and (who is None or (read_out and fingerprint)):
        raise click.UsageError("name whose key it is, and give --words or --fingerprint, not both")
    if told is None:
        with desk_of(context, alone=False) as desk:
            rows = [_row(key_id, known) for key_id, known in _keys(desk, who)]
            show(rows, as_json, lambda: _tell(rows))
        return
    assert who is not None  # noqa: S101 - refused above
    with desk_of(context) as desk:
        verified = _compare(desk, who, told)
        rows = [{"address": one.address, **_row(one.key_id, [one])} for one in verified]
        show(rows, as_json, lambda: _tell_verified(verified))


def _keys(desk: Desk, who: str | KeyId | None) -> list[tuple[KeyId, Sequence[KnownKey] | None]]:
    """Return the keys to print, each with what is known of it if it is not the own."""
    if who is None:
        return [(desk.settings.key_id, None)]
    if isinstance(who, KeyId):
        return [(who, desk.correspondents.addresses_of(who))]
    return [(one.key_id, [one]) for one in _candidates(desk.correspondents, who)]


def _candidates(book: Correspondents, who: str | KeyId) -> Sequence[KnownKey]:
    known = book.known(who) if isinstance(who, str) else book.addresses_of(who)
    if not known:
        raise KeyNotFound(f"no address with the key of {who} is known: `sealmail key find` it")
    return known


def _compare(desk: Desk, who: str | KeyId, told: KeyId) -> list[KnownKey]:
    """Mark the key that was read out as verified; return its entries in the address book."""
    book = desk.correspondents
    matching = [one for one in _candidates(book, who) if one.key_id == told]
    if not matching:
        raise WrongFingerprint(
            f"what was read out is the fingerprint {hex_groups(told)}, which is not that of "
            f"{who}: repeat it; if it stays so, the key that was found is not its owner's, "
            "and nothing secret should be sent to it"
        )
    for one in matching:
        book.verify(one.address, told, desk.clock())
    return [one for one in _candidates(book, who) if one.key_id == told]


def _row(key_id: KeyId, known: Sequence[KnownKey] | None) -> dict[str, object]:
    return {
        "key_id": key_id.hex,
        "standing": "your own" if known is None else standing_of(known),
        "marks": marks_of(known or ()),
        "words": list(fingerprint_words(key_id)),
        "code": code_text(key_id),
    }


def _tell(rows: Sequence[dict[str, object]]) -> None:
    for row in rows:
        key_id = KeyId.from_hex(str(row["key_id"]))
        click.echo(f"{hex_groups(key_id)}  {row['standing']}")
        click.echo("\n".join(f"  {words}" for words in word_rows(key_id)))
        click.echo(terminal_code(key_id))


def _tell_verified(verified: Sequence[KnownKey]) -> None:
    for one in verified:
        click.echo(f"{one.address} is {one.key_id}, verified with its owner ({one.standing})")
