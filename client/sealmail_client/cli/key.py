"""``sealmail key``: the own key, and those of others."""

import asyncio
from collections.abc import Sequence

import click

from sealmail_client.addressing import Addressing, KeyNotFound
from sealmail_client.cli.program import Commands, desk_of, json_option, readable, show, tell_doubts
from sealmail_client.cli.tables import Column, tell_table
from sealmail_client.cli.values import ADDRESS, KEY_ID, SERVER, WHO
from sealmail_client.cli.verify import verify
from sealmail_client.correspondents import Correspondents, KnownKey
from sealmail_client.fingerprint_words import hex_groups
from sealmail_client.key_changes import KeyUndecided, marks_of, standing_of
from sealmail_client.key_lookup import FoundKey
from sealmail_client.presence import publish_everywhere
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.dates import format_date
from sealmail_protocol.keys import KeyId

_COLUMNS = (
    Column("Address", whole=True),
    Column("Key", whole=True),
    Column("Standing"),
    Column("Last seen", whole=True),
)


@click.group(cls=Commands)
def key() -> None:
    """Publish the own key, and find and judge those of others."""


key.add_command(verify)


@key.command()
@json_option
@click.pass_context
def publish(context: click.Context, as_json: bool) -> None:
    """Post the own key and address to the own servers, made anew."""
    with desk_of(context) as desk:
        settings = desk.settings
        tell_doubts(asyncio.run(publish_everywhere(desk)))
        show(
            {
                "key_id": settings.key_id.hex,
                "address": settings.address,
                "transport": str(settings.transport),
            },
            as_json,
            lambda: click.echo(f"published {settings.key_id} for {settings.address}"),
        )


@key.command()
@click.argument("who", type=WHO)
@click.option(
    "--server",
    "servers",
    type=SERVER,
    multiple=True,
    help="The server to ask, each one if repeated; without it, your home server and those that "
    "DNS names.",
)
@json_option
@click.pass_context
def find(
    context: click.Context, who: str | KeyId, servers: tuple[ServerAddress, ...], as_json: bool
) -> None:
    """Look up the keys that claim an address, or the key with this id, and keep them."""
    with desk_of(context) as desk:
        addressing = Addressing(desk)
        found = asyncio.run(_find(addressing, who, servers))
        tell_doubts(addressing.doubts)
        if not found:
            raise KeyNotFound(
                f"no key for {who} was found: ask its owner for the server, and name it by "
                "--server HOST:PORT"
            )
        rows = [_found_row(one, who, desk.correspondents) for one in found]
        show(rows, as_json, lambda: _tell_found(rows))
        _warn(desk.correspondents, who)


@key.command(name="list")
@click.argument("text", default="")
@json_option
@click.pass_context
def list_keys(context: click.Context, text: str, as_json: bool) -> None:
    """List the address book, or the entries whose address, name or key id holds TEXT."""
    with desk_of(context, alone=False) as desk:
        known = desk.correspondents.search(text)
        show([_known_row(one) for one in known], as_json, lambda: _tell_list(known))


@key.command(name="show")
@click.argument("who", type=WHO, required=False)
@json_option
@click.pass_context
def show_keys(context: click.Context, who: str | KeyId | None, as_json: bool) -> None:
    """Show the own key, or what is known of an address or a key."""
    with desk_of(context, alone=False) as desk:
        if who is None:
            own = {"key_id": desk.settings.key_id.hex, "user_id": desk.settings.user_id}
            show(own, as_json, lambda: click.echo(f"{own['key_id']}  {own['user_id']}"))
            return
        known = _known(desk.correspondents, who)
        if not known:
            raise KeyNotFound(f"no key for {who} is known: `sealmail key find {who}`")
        show(
            [_known_row(one) for one in known],
            as_json,
            lambda: _tell_known(known, desk.correspondents),
        )
        _warn(desk.correspondents, who)


@key.command()
@click.argument("address", type=ADDRESS)
@click.argument("key_id", type=KEY_ID)
@json_option
@click.pass_context
def trust(context: click.Context, address: str, key_id: KeyId, as_json: bool) -> None:
    """Decide that KEYID, and no other key, belongs to ADDRESS."""
    with desk_of(context) as desk:
        if key_id not in {one.key_id for one in desk.correspondents.known(address)}:
            raise KeyNotFound(
                f"{key_id} was never seen to claim {address}: `sealmail key find` it first"
            )
        desk.correspondents.trust(address, key_id, desk.clock())
        (trusted,) = (one for one in desk.correspondents.known(address) if one.key_id == key_id)
        told = f"{address} is {key_id} from now on ({trusted.standing})"
        show(_known_row(trusted), as_json, lambda: click.echo(told))


@key.command()
@click.argument("address", type=ADDRESS)
@click.pass_context
def forget(context: click.Context, address: str) -> None:
    """Strike ADDRESS off the address book; revocations stay known."""
    with desk_of(context) as desk:
        if not desk.correspondents.forget(address):
            raise KeyNotFound(f"{address} is not in the address book: `sealmail key list`")
        click.echo(f"{address} is forgotten; the next key that claims it is trusted again")


async def _find(
    addressing: Addressing, who: str | KeyId, servers: Sequence[ServerAddress]
) -> tuple[FoundKey, ...]:
    if isinstance(who, str):
        return await addressing.find(who, servers)
    found = await addressing.find_by_id(who, servers)
    return () if found is None else (found,)


def _known(book: Correspondents, who: str | KeyId) -> tuple[KnownKey, ...]:
    return book.known(who) if isinstance(who, str) else book.addresses_of(who)


def _warn(book: Correspondents, who: str | KeyId) -> None:
    """Tell at once what would stop mail to the addresses concerned."""
    for address in sorted({one.address for one in _known(book, who)}):
        try:
            book.trusted_key(address)
        except KeyUndecided as warning:
            click.echo(f"warning: {readable(str(warning))}", err=True)


def _found_row(found: FoundKey, who: str | KeyId, book: Correspondents) -> dict[str, object]:
    announcement = found.announcement
    known = [one for one in _known(book, who) if one.key_id == found.key_id]
    return {
        "key_id": found.key_id.hex,
        "user_id": announcement.user_id,
        "transport": str(announcement.transport),
        "price": str(announcement.price),
        "date": format_date(announcement.date),
        "standing": standing_of(known),
        "marks": marks_of(known),
        "revoked": found.revoked,
    }


def _known_row(known: KnownKey) -> dict[str, object]:
    verified = known.domain_verified
    return {
        "address": known.address,
        "key_id": known.key_id.hex,
        "user_id": known.user_id,
        "decision": str(known.decision),
        "change": str(known.change),
        "revoked": known.revoked,
        "first_seen": format_date(known.first_seen),
        "last_seen": format_date(known.last_seen),
        "seen_at": known.seen_at,
        "marks": marks_of([known]),
        "domain_verified": None if verified is None else format_date(verified),
    }


def _tell_found(rows: Sequence[dict[str, object]]) -> None:
    for row in rows:
        click.echo(f"{row['key_id']}  {readable(str(row['user_id']))}  {row['standing']}")
        click.echo(f"     {row['transport']}, price {row['price']}")


def _tell_list(known: Sequence[KnownKey]) -> None:
    rows = [
        (one.address, str(one.key_id), one.standing, format_date(one.last_seen)) for one in known
    ]
    width = max((len(one.address) for one in known), default=0)
    lines = [
        f"{address:<{width}}  {key_id}  {standing}, last seen {seen}"
        for address, key_id, standing, seen in rows
    ]
    tell_table(_COLUMNS, rows, "\n".join(lines) or "nobody found")


def _tell_known(known: Sequence[KnownKey], book: Correspondents) -> None:
    for one in known:
        click.echo(f"{hex_groups(one.key_id)}  {one.standing}")
        click.echo(f"     {one.address}, {readable(one.user_id)}")
        first, last = format_date(one.first_seen), format_date(one.last_seen)
        click.echo(f"     first seen {first}, last seen {last} at {one.seen_at or 'no server'}")
        if one.domain_verified is not None:
            click.echo(f"     domain-verified {format_date(one.domain_verified)}")
        announcement = book.newest(one.key_id)
        if announcement is not None:
            click.echo(f"     {announcement.transport}, price {announcement.price}")
