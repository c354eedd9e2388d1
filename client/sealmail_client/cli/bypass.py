"""``sealmail bypass``, ``block`` and ``unblock``: who may write without work, and who may not."""

import asyncio
from collections.abc import Sequence

import click

from sealmail_client.bypass_book import BypassEntry
from sealmail_client.cli.program import Commands, desk_of, json_option, readable, show, tell_doubts
from sealmail_client.cli.values import WHO
from sealmail_client.desk import Desk
from sealmail_client.errors import ClientError
from sealmail_client.folders import SignatureState
from sealmail_client.headers import address_in
from sealmail_client.key_changes import marks_of, standing_of
from sealmail_client.presence import stay_findable
from sealmail_protocol.dates import format_date
from sealmail_protocol.keys import KeyId


class NobodyKnown(ClientError):
    """No key is known for this address: name the key id, which `sealmail read` shows."""

    exit_code = 20


@click.group(cls=Commands)
def bypass() -> None:
    """See and withdraw what lets known senders write to you without work."""


@bypass.command(name="list")
@json_option
@click.pass_context
def list_secrets(context: click.Context, as_json: bool) -> None:
    """List the secrets that you gave and were given, without the secrets themselves."""
    with desk_of(context, alone=False) as desk:
        rows = [_row(desk, entry) for entry in desk.bypass.entries(desk.clock())]
        show(rows, as_json, lambda: _tell(rows))


@bypass.command()
@click.argument("who", type=WHO)
@json_option
@click.pass_context
def revoke(context: click.Context, who: str | KeyId, as_json: bool) -> None:
    """Honour no token of WHO any more, until you write to him again.

    WHO is an address or key id. Others whose secret is older than his will work for their mail
    until you write to them again.
    """
    with desk_of(context) as desk:
        desk.require_valid_key()
        revoked = [one for one in _keys(desk, who) if desk.bypass.revoke(one, desk.clock())]
        tell_doubts(asyncio.run(stay_findable(desk)))
        told = [f"{_named(desk, one)} must work for his mail again" for one in revoked]
        nothing = f"{who} had no secret of yours"
        show(_keys_row("revoked", revoked), as_json, lambda: _tell_each(told, nothing))


@bypass.command()
@json_option
@click.pass_context
def reset(context: click.Context, as_json: bool) -> None:
    """Honour no token any more that was made from a secret you gave until now."""
    with desk_of(context) as desk:
        desk.require_valid_key()
        count = desk.bypass.reset(desk.clock())
        tell_doubts(asyncio.run(stay_findable(desk)))
        told = f"{count} secrets are void; whom you write to is given another"
        show({"void": count}, as_json, lambda: click.echo(told))


@click.command()
@click.argument("who", type=WHO)
@json_option
@click.pass_context
def block(context: click.Context, who: str | KeyId, as_json: bool) -> None:
    """Refuse the mail of WHO, an address or key id, and revoke his bypass secret."""
    with desk_of(context) as desk:
        blocked = _keys(desk, who)
        for key_id in blocked:
            desk.blocklist.block(key_id, desk.clock())
            desk.bypass.revoke(key_id, desk.clock())
        told = [f"{_named(desk, one)} is blocked" for one in blocked]
        show(_keys_row("blocked", blocked), as_json, lambda: _tell_each(told))
        tell_doubts(asyncio.run(stay_findable(desk)))


@click.command()
@click.argument("who", type=WHO)
@json_option
@click.pass_context
def unblock(context: click.Context, who: str | KeyId, as_json: bool) -> None:
    """Take the mail of WHO again; `sealmail fetch --all` brings what was refused."""
    with desk_of(context) as desk:
        freed = [one for one in _keys(desk, who) if desk.blocklist.unblock(one)]
        told = [f"{_named(desk, one)} is not blocked any more" for one in freed]
        nothing = f"{who} was not blocked{_others(desk)}"
        show(_keys_row("unblocked", freed), as_json, lambda: _tell_each(told, nothing))


def _keys_row(done: str, keys: Sequence[KeyId]) -> dict[str, object]:
    return {done: [key_id.hex for key_id in keys]}


def _tell_each(lines: Sequence[str], nothing: str = "") -> None:
    for line in lines or filter(None, [nothing]):
        click.echo(line)


def _keys(desk: Desk, who: str | KeyId) -> tuple[KeyId, ...]:
    """Return the keys that are meant: those of the address book, and of who signed with it."""
    if isinstance(who, KeyId):
        return (who,)
    known = [key.key_id for key in desk.correspondents.known(who)]
    written = [
        mail.envelope.sender_key
        for mail in desk.folders.all()
        if mail.envelope.signature is SignatureState.VALID
        and address_in(mail.envelope.sender) == who
    ]
    own = desk.settings.key_id
    keys = tuple(key for key in dict.fromkeys((*known, *written)) if key != own)
    if not keys:
        raise NobodyKnown(
            f"no key of {who} is known: name the key id, which `sealmail read` shows"
        )
    return keys


def _named(desk: Desk, key_id: KeyId) -> str:
    announcement = desk.correspondents.newest(key_id)
    who = f"{announcement.user_id} {key_id}" if announcement else str(key_id)
    return readable(f"{who} ({standing_of(desk.correspondents.addresses_of(key_id))})")


def _others(desk: Desk) -> str:
    blocked = ", ".join(_named(desk, key_id) for key_id in desk.blocklist.all())
    return f"; blocked are: {blocked}" if blocked else ""


def _row(desk: Desk, entry: BypassEntry) -> dict[str, object]:
    announcement = desk.correspondents.newest(entry.key_id)
    known = desk.correspondents.addresses_of(entry.key_id)
    return {
        "key_id": entry.key_id.hex,
        "user_id": announcement.user_id if announcement else "",
        "standing": standing_of(known),
        "marks": marks_of(known),
        "direction": "given" if entry.given else "received",
        "created": format_date(entry.created),
        "expires": format_date(entry.expires) if entry.expires else None,
        "usable": entry.usable,
        "blocked": desk.blocklist.holds(entry.key_id),
    }


def _tell(rows: list[dict[str, object]]) -> None:
    if not rows:
        click.echo(
            "no secrets yet: mail to and from somebody whose program knows of them brings one"
        )
    for row in rows:
        state = "" if row["usable"] else "  void"
        blocked = "  blocked" if row["blocked"] else ""
        who = readable(f"{row['user_id']} {row['key_id']} ({row['standing']})".strip())
        click.echo(f"{row['direction']:>8}  {row['created']}  {who}{state}{blocked}")
