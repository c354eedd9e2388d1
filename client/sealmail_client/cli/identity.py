"""``sealmail identity``: who the user is, and what others may know and ask of him."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from sealmail_client.cli.init import algorithm_option, answered, create, is_published
from sealmail_client.cli.own_key import change_passphrase, export, revoke, rotate
from sealmail_client.cli.program import Commands, Start, desk_of, json_option, show, tell_doubts
from sealmail_client.cli.settling import invitation_argument, settle, settling_options
from sealmail_client.cli.values import AUTH_KEY, PRICE, SERVER
from sealmail_client.cli.ways_out import (
    tell_ways_out,
    ways_out,
    ways_out_options,
    ways_out_row,
)
from sealmail_client.creation import import_identity
from sealmail_client.desk import Desk, open_desk, utc_now
from sealmail_client.errors import BadKey
from sealmail_client.household import Member
from sealmail_client.keyring import Algorithm
from sealmail_client.own_key import MAX_SECRET_KEY_BYTES
from sealmail_client.passphrases import ask_passphrase
from sealmail_client.presence import publish_everywhere
from sealmail_client.settings import MAX_DELAY_MINUTES, AuthKey, Delivery, Locked, Place, Settings
from sealmail_client.terms import MIN_MAILBOXES, numbered_mailboxes, seconds_of, spoken_seconds
from sealmail_client.throttle import MIN_KIB
from sealmail_pow import Difficulty
from sealmail_protocol.addresses import ServerAddress, Transport
from sealmail_protocol.block_codec import MAX_MAILBOXES
from sealmail_protocol.invitations import Invitation


@click.group(cls=Commands)
def identity() -> None:
    """Make, list, change and end your identities."""


for _command in (export, rotate, change_passphrase, revoke):
    identity.add_command(_command)


@identity.command(name="list")
@json_option
@click.pass_context
def list_identities(context: click.Context, as_json: bool) -> None:
    """List the identities of this home; * marks the one that is meant if none is named."""
    start: Start = context.obj
    members = start.household.members()
    chosen = start.member().number if members else 0
    rows = [_row(member, member.number == chosen) for member in members]
    show(rows, as_json, lambda: _tell(rows))


@identity.command()
@click.argument("address")
@click.pass_context
def default(context: click.Context, address: str) -> None:
    """Choose the identity, by ADDRESS or key id, that is meant if none is named."""
    start: Start = context.obj
    settings = start.household.choose(address).settings
    start.household.set_default(settings.key_id)
    click.echo(f"{settings.address} ({settings.key_id}) is meant from now on if none is named")


@identity.command(name="create")
@invitation_argument
@settling_options
@algorithm_option
@json_option
@click.pass_context
def create_identity_command(
    context: click.Context,
    /,
    code: Invitation | None,
    algorithm: Algorithm,
    as_json: bool,
    **said: Any,
) -> None:
    """Make a further identity, with nothing in common with the others."""
    start: Start = context.obj
    create(start.household, answered(code, said), algorithm, as_json)


@identity.command(name="import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@settling_options
@json_option
@click.pass_context
def import_identity_command(
    context: click.Context, /, file: Path, as_json: bool, **said: Any
) -> None:
    """Make an identity with the OpenPGP secret key in FILE, armored or not."""
    start: Start = context.obj
    wish = answered(None, said).wish()
    with file.open("rb") as source:
        content = source.read(MAX_SECRET_KEY_BYTES + 1)
    passphrase = ask_passphrase() if wish.lock is Locked.PASSPHRASE else None
    try:
        member = import_identity(start.household, wish, passphrase, content, utc_now)
    except ValueError as error:
        raise BadKey(str(error)) from None
    settle(member, passphrase, as_json)


@identity.command()
@click.argument("address")
@click.pass_context
def remove(context: click.Context, address: str) -> None:
    """Remove an identity, by ADDRESS or key id, that was made but never published."""
    start: Start = context.obj
    member = start.household.choose(address)
    if is_published(member):
        raise click.UsageError(
            f"{member.settings.address} is published and may hold mail: make a back-up, then "
            f"remove {member.home.path} yourself"
        )
    start.household.remove(member)
    click.echo(f"removed {member.settings.address}, which nobody has seen")


@identity.command(name="set")
@click.option("--price", type=PRICE, help="What strangers pay: bd,BITS,N, or seconds such as 2s.")
@click.option(
    "--mailboxes",
    type=click.IntRange(MIN_MAILBOXES, MAX_MAILBOXES),
    help="Over how many mailboxes your mail is spread.",
)
@click.option(
    "--server",
    "servers",
    type=SERVER,
    multiple=True,
    help="Your home: the servers of its group, all of them, the one to ask first in front.",
)
@click.option(
    "--entangled",
    "doors",
    type=SERVER,
    multiple=True,
    metavar="HOST:PORT",
    help="The servers by which you reach the DHT, all of them.",
)
@click.option(
    "--no-entangled", is_flag=True, help="Reach the DHT by your home server, as at first."
)
@click.option(
    "--old-server",
    type=SERVER,
    help="A server that correspondents may still ask for you; needs --old-auth-key.",
)
@click.option(
    "--old-auth-key",
    type=AUTH_KEY,
    envvar="SEALMAIL_OLD_AUTH_KEY",
    help="What opens the account there; also from SEALMAIL_OLD_AUTH_KEY.",
)
@click.option("--no-old-server", is_flag=True, help="Publish on no old server any more.")
@click.option(
    "--pub-server",
    type=SERVER,
    help="The server that the DNS of your domain names; needs --pub-auth-key.",
)
@click.option(
    "--pub-auth-key",
    type=AUTH_KEY,
    envvar="SEALMAIL_PUB_AUTH_KEY",
    help="What opens the account there; also from SEALMAIL_PUB_AUTH_KEY.",
)
@click.option("--no-pub-server", is_flag=True, help="Publish on no Pub server any more.")
@click.option(
    "--allow-private-targets/--forbid-private-targets",
    "private_targets",
    default=None,
    help="Whether servers in private networks and on this machine are meant.",
)
@click.option(
    "--throttle",
    type=click.IntRange(min=0),
    metavar="KIB",
    help=f"Move at most so many KiB a second, {MIN_KIB} or more; 0 is no limit.",
)
@click.option(
    "--delay",
    type=click.IntRange(0, MAX_DELAY_MINUTES),
    metavar="MINUTES",
    help="Hold mail back for a random time up to this; 0 sends it at once.",
)
@click.option(
    "--pad/--no-pad", default=None, help="Fill mail up, so that its size tells less, or do not."
)
@click.option(
    "--dht/--no-dht",
    default=None,
    help="Publish key and claim in the DHT by your home server, and seek others' there.",
)
@click.option(
    "--send",
    type=click.Choice([str(one) for one in Delivery]),
    help="Who delivers your mail: this program (direct), or your home server (proxy).",
)
@click.option(
    "--acknowledge",
    type=click.Choice([str(one) for one in Delivery]),
    help="Who leaves acknowledgments with senders: your home server (proxy), or this program.",
)
@ways_out_options
@json_option
@click.pass_context
def set_terms(
    context: click.Context,
    /,
    price: Difficulty | None,
    mailboxes: int | None,
    servers: tuple[ServerAddress, ...],
    doors: tuple[ServerAddress, ...],
    no_entangled: bool,
    old_server: ServerAddress | None,
    old_auth_key: AuthKey | None,
    no_old_server: bool,
    pub_server: ServerAddress | None,
    pub_auth_key: AuthKey | None,
    no_pub_server: bool,
    private_targets: bool | None,
    throttle: int | None,
    delay: int | None,
    pad: bool | None,
    dht: bool | None,
    send: str | None,
    acknowledge: str | None,
    as_json: bool,
    **ways: Any,
) -> None:
    """Change what strangers pay, where you are published, and how your mail leaves.

    What others must know is published at once.

    Mail that keeps to the former price and mailboxes is welcome for another 12 days.
    """
    with desk_of(context) as desk:
        desk.require_valid_key()
        settings = desk.settings
        if price is not None:
            settings = replace(settings, price=price)
        if mailboxes is not None:
            settings = replace(settings, mailboxes=numbered_mailboxes(mailboxes))
        if servers:
            settings = replace(settings, transport=_group(settings.transport, servers))
        if no_entangled and (doors or not settings.has_account):
            raise click.UsageError("--no-entangled is for one who has a home server instead")
        if servers and not settings.has_account:
            raise click.UsageError("you live in the DHT: `sealmail identity create` makes a home")
        old = _further(desk, Place.OLD, old_server, old_auth_key, no_old_server)
        pub = _further(desk, Place.PUB, pub_server, pub_auth_key, no_pub_server)
        settings = replace(settings, old_transport=old, pub_transport=pub)
        if private_targets is not None:
            settings = replace(settings, allow_private_targets=private_targets)
        habits = {
            "throttle_kib": throttle,
            "delay_minutes": delay,
            "doors": () if no_entangled else tuple(dict.fromkeys(doors)) or None,
            "pad_sizes": pad,
            "send": None if send is None else Delivery(send),
            "acknowledge": None if acknowledge is None else Delivery(acknowledge),
            "connecting": ways_out(ways, settings.connecting),
        }
        if dht is not None:
            settings = replace(settings, dht=dht)
        settings = _with_habits(settings, habits)
        if settings == desk.settings:
            raise click.UsageError(
                "nothing would change: no option was given, or all is set so already"
            )
        private = settings == _with_habits(desk.settings, habits)
        desk.change(settings)
        if not private:
            tell_doubts(asyncio.run(publish_everywhere(desk)))
        show(_terms_row(settings), as_json, lambda: _tell_terms(settings))


def _with_habits(settings: Settings, habits: dict[str, Any]) -> Settings:
    """Change how mail leaves, as far as anything was said of it."""
    try:
        said = {name: value for name, value in habits.items() if value is not None}
        return replace(settings, **said)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _group(held: Transport, servers: tuple[ServerAddress, ...]) -> Transport:
    """Return the home group that is to be: it keeps a server, so that no mail is left behind."""
    if not set(servers) & set(held.servers):
        raise click.BadParameter(
            f"keep at least one of the present servers ({held}), or mail is left behind",
            param_hint="--server",
        )
    try:
        return Transport.parse(str(Transport(tuple(dict.fromkeys(servers)))))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--server") from None


def _further(
    desk: Desk,
    place: Place,
    server: ServerAddress | None,
    auth_key: AuthKey | None,
    none: bool,
) -> Transport | None:
    """Return the old or Pub server that is to be; its auth key is kept, its postings forgotten."""
    held = desk.settings.places.get(place)
    if server is None and auth_key is None and not none:
        return held
    if none:
        if server is not None or auth_key is not None:
            raise click.UsageError(f"--no-{place}-server excludes the other options for it")
        desk.home.auth_file_of(place).unlink(missing_ok=True)
    elif server is None or auth_key is None:
        raise click.UsageError(f"--{place}-server and --{place}-auth-key are given together")
    else:
        desk.home.save_auth_key(auth_key, place)
    desk.own_blocks.forget_postings(place)
    return None if server is None else Transport((server,))


def _terms_row(settings: Settings) -> dict[str, object]:
    return {
        "address": settings.address,
        "key_id": settings.key_id.hex,
        "price": str(settings.price),
        "mailboxes": len(settings.mailboxes),
        "places": {str(place): str(one) for place, one in settings.places.items()},
        "doors": list(map(str, settings.doors)),
        "dht": settings.dht,
        "allow_private_targets": settings.allow_private_targets,
        "throttle_kib": settings.throttle_kib,
        "delay_minutes": settings.delay_minutes,
        "pad_sizes": settings.pad_sizes,
        "send": str(settings.send),
        "acknowledge": str(settings.acknowledge),
        **ways_out_row(settings.connecting),
    }


def _tell_terms(settings: Settings) -> None:
    price = settings.price
    work = f", {spoken_seconds(seconds_of(price))} of a home computer" if price.nonces == 2 else ""
    click.echo(f"strangers pay {price}{work}; {len(settings.mailboxes)} mailboxes")
    for place, transport in settings.places.items():
        click.echo(f"published on {transport} ({place})")
    if settings.doors:
        click.echo(f"the DHT is reached by {' and '.join(map(str, settings.doors))}")
    if settings.throttle_kib:
        click.echo(f"at most {settings.throttle_kib} KiB a second are moved")
    if settings.delay_minutes:
        click.echo(f"mail is held back for up to {settings.delay_minutes} minutes")
    if settings.send is Delivery.PROXY:
        click.echo("your home server delivers your mail")
    if settings.acknowledge is Delivery.DIRECT:
        click.echo("acknowledgments go straight to the servers of senders")
    if settings.dht:
        click.echo("published in the DHT, where keys of others are sought too")
    if settings.pad_sizes:
        click.echo("mail is filled up to hide its size")
    tell_ways_out(settings.connecting)


def _row(member: Member, chosen: bool) -> dict[str, object]:
    settings = member.settings
    with open_desk(member.home, alone=False) as desk:
        revoked = desk.own_blocks.revoked
    return {
        "address": settings.address,
        "name": settings.name,
        "key_id": settings.key_id.hex,
        "transport": str(settings.transport),
        "price": str(settings.price),
        "mailboxes": len(settings.mailboxes),
        "directory": str(member.home.path),
        "default": chosen,
        "revoked": revoked,
        "published": is_published(member),
    }


def _tell(rows: list[dict[str, object]]) -> None:
    for row in rows:
        mark = "*" if row["default"] else " "
        end = "" if row["published"] else "  not published yet"
        end = "  revoked" if row["revoked"] else end
        click.echo(f"{mark} {row['name']} <{row['address']}>  {row['key_id']}{end}")
    if not rows:
        click.echo("no identity yet: `sealmail init` makes one")
