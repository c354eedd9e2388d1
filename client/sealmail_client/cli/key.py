"""``sealmail key``: the own key, and those of others."""

import asyncio

import click

from sealmail_client.addressing import Addressing, KeyNotFound
from sealmail_client.cli.program import (
    desk_of,
    json_option,
    readable,
    show,
    tell_doubts,
)
from sealmail_client.cli.values import ADDRESS, KEY_ID, SERVER
from sealmail_client.correspondents import KnownKey
from sealmail_client.key_lookup import FoundKey
from sealmail_client.presence import publish_everywhere
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.dates import format_date
from sealmail_protocol.keys import KeyId


@click.group()
def key() -> None:
    """Publish the own key, and find and judge those of others."""


@key.command()
@click.pass_context
def publish(context: click.Context) -> None:
    """Post the own key and address to the own servers, made anew."""
    with desk_of(context) as desk:
        tell_doubts(asyncio.run(publish_everywhere(desk)))
        click.echo(f"published {desk.settings.key_id} for {desk.settings.address}")


@key.command()
@click.argument("address", type=ADDRESS)
@click.option(
    "--server",
    "servers",
    type=SERVER,
    multiple=True,
    help="The server to ask; without it, the home server.",
)
@json_option
@click.pass_context
def find(
    context: click.Context, address: str, servers: tuple[ServerAddress, ...], as_json: bool
) -> None:
    """Look up the keys that claim ADDRESS, and keep them in the address book."""
    with desk_of(context) as desk:
        addressing = Addressing(desk)
        found = asyncio.run(addressing.find(address, servers))
        tell_doubts(addressing.doubts)
        if not found:
            raise KeyNotFound(f"no key for {address} is there: is it the right server?")
        known = desk.correspondents.known(address)
        show([_found_row(one) for one in found], as_json, lambda: _tell_found(found, known))


@key.command(name="show")
@click.argument("address", type=ADDRESS, required=False)
@json_option
@click.pass_context
def show_keys(context: click.Context, address: str | None, as_json: bool) -> None:
    """Show the own key, or those known for ADDRESS."""
    with desk_of(context, alone=False) as desk:
        if address is None:
            own = {"key_id": desk.settings.key_id.hex, "user_id": desk.settings.user_id}
            show(own, as_json, lambda: click.echo(f"{own['key_id']}  {own['user_id']}"))
            return
        known = desk.correspondents.known(address)
        if not known:
            raise KeyNotFound(f"no key for {address} is known: `sealmail key find {address}`")
        show([_known_row(one) for one in known], as_json, lambda: _tell_known(known))


@key.command()
@click.argument("address", type=ADDRESS)
@click.argument("key_id", type=KEY_ID)
@click.pass_context
def trust(context: click.Context, address: str, key_id: KeyId) -> None:
    """Decide that KEYID, and no other key, belongs to ADDRESS."""
    with desk_of(context) as desk:
        if key_id not in {one.key_id for one in desk.correspondents.known(address)}:
            raise KeyNotFound(
                f"{key_id} was never seen to claim {address}: `sealmail key find` it first"
            )
        desk.correspondents.trust(address, key_id, desk.clock())
        click.echo(f"{address} is {key_id} from now on")


def _found_row(found: FoundKey) -> dict[str, object]:
    announcement = found.announcement
    return {
        "key_id": found.key_id.hex,
        "user_id": announcement.user_id,
        "transport": str(announcement.transport),
        "price": str(announcement.price),
        "date": format_date(announcement.date),
        "revoked": found.revoked,
    }


def _known_row(known: KnownKey) -> dict[str, object]:
    return {
        "key_id": known.key_id.hex,
        "decision": str(known.decision),
        "first_seen": format_date(known.first_seen),
    }


def _tell_found(found: tuple[FoundKey, ...], known: tuple[KnownKey, ...]) -> None:
    decisions = {one.key_id: str(one.decision) for one in known}
    for one in found:
        decision = "revoked" if one.revoked else decisions[one.key_id]
        click.echo(f"{one.key_id}  {readable(one.announcement.user_id)}  {decision}")
        click.echo(f"     {one.announcement.transport}, price {one.announcement.price}")


def _tell_known(known: tuple[KnownKey, ...]) -> None:
    for one in known:
        click.echo(f"{one.key_id}  {one.decision}, first seen {format_date(one.first_seen)}")
