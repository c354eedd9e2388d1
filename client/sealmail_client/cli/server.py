"""``sealmail server``: the keys of servers, and the user's word when one has changed."""

import click

from sealmail_client.cli.program import Commands, desk_of, json_option, show
from sealmail_client.cli.tables import Column, tell_table
from sealmail_client.cli.values import PIN, SERVER
from sealmail_client.pin_book import KnownPin, PinBook
from sealmail_net.pins import ways_to
from sealmail_net.ways import Way
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.dates import format_date

_COLUMNS = (Column("Way", whole=True), Column("Key", whole=True), Column("Since", whole=True))


@click.group(cls=Commands)
def server() -> None:
    """Show the keys of servers, and decide when one has changed."""


@server.command()
@json_option
@click.pass_context
def pins(context: click.Context, as_json: bool) -> None:
    """List the keys that servers have shown, for each way to them."""
    with desk_of(context, alone=False) as desk:
        known = PinBook(desk.database, desk.clock).all()
        show([_row(one) for one in known], as_json, lambda: _tell(known))


@server.command()
@click.argument("address", type=SERVER)
@click.argument("pin", type=PIN)
@click.option(
    "--exit",
    "by_exit",
    is_flag=True,
    help="It was seen through an exit node; what is known of the direct way stays.",
)
@click.pass_context
def accept(context: click.Context, address: ServerAddress, pin: bytes, by_exit: bool) -> None:
    """Accept PIN as the key of the server at ADDRESS (HOST:PORT) from now on.

    Do so only when the operator has confirmed it by another way than this server.
    """
    way = Way.EXIT if by_exit else ways_to(address)[0]
    with desk_of(context) as desk:
        PinBook(desk.database, desk.clock).accept(address, pin, (way,))
    click.echo(f"{address} is known by {pin.hex()} from now on")


def _row(known: KnownPin) -> dict[str, object]:
    return {
        "way": known.way,
        "pin": known.pin.hex(),
        "first_seen": format_date(known.first_seen),
        "previous": known.previous.hex() if known.previous is not None else None,
    }


def _tell(known: tuple[KnownPin, ...]) -> None:
    lines, rows = [], []
    for one in known:
        since = format_date(one.first_seen)
        lines.append(f"{one.way}  {one.pin.hex()}  since {since}")
        rows.append((one.way, one.pin.hex(), since))
        if one.previous is not None:
            lines.append(f"     before that {one.previous.hex()}")
            rows.append(("", one.previous.hex(), "before that"))
    tell_table(_COLUMNS, rows, "\n".join(lines))
