"""What `init`, `identity create` and `identity import` ask a user, by options or at the prompt."""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from sealmail_client.cli.program import show, tell_doubts, watcher
from sealmail_client.cli.values import ADDRESS, AUTH_KEY, INVITATION, PRICE, SERVER
from sealmail_client.cli.ways_out import ways_out_options
from sealmail_client.connecting import DIRECTLY, Connecting
from sealmail_client.creation import Account, Doors, Residence, Wish
from sealmail_client.desk import open_desk
from sealmail_client.errors import ClientError
from sealmail_client.household import Member
from sealmail_client.presence import publish_everywhere
from sealmail_client.settings import DEFAULT_PRICE, AuthKey, Locked
from sealmail_net.errors import NetworkError
from sealmail_pow import Difficulty
from sealmail_protocol.addresses import ServerAddress, normal_address
from sealmail_protocol.invitations import PREFIX, Invitation

_OPTIONS = (
    click.option("--name", help="The name that others see."),
    click.option("--address", type=ADDRESS, help="The address to claim."),
    click.option(
        "--invitation",
        type=INVITATION,
        envvar="SEALMAIL_INVITATION",
        help="The code from your operator instead of server and auth key; also from "
        "SEALMAIL_INVITATION.",
    ),
    click.option(
        "--server",
        "servers",
        type=SERVER,
        multiple=True,
        help="The home server; repeat it for the other servers of its group.",
    ),
    click.option(
        "--auth-key",
        type=AUTH_KEY,
        envvar="SEALMAIL_AUTH_KEY",
        help="What opens the account; asked for if absent, also from SEALMAIL_AUTH_KEY.",
    ),
    click.option(
        "--entangled",
        "doors",
        type=SERVER,
        multiple=True,
        metavar="HOST:PORT",
        help="Live in the DHT, without a home server and an account; reach it by this server, or "
        "by several of them.",
    ),
    click.option(
        "--dht/--no-dht",
        default=None,
        help="Publish key and claim in the DHT by your home server, and seek others' there, or "
        "do not.",
    ),
    click.option(
        "--price",
        type=PRICE,
        default=DEFAULT_PRICE,
        show_default=True,
        help="The stamp that strangers pay to write to you: bd,BITS,N, or seconds such as 2s.",
    ),
    click.option("--no-passphrase", is_flag=True, help="The key is not locked on this machine."),
    click.option(
        "--agent",
        is_flag=True,
        help="Leave the passphrase to gpg-agent and its pinentry, or the key to a smartcard.",
    ),
    click.option(
        "--allow-private-targets",
        is_flag=True,
        help="Allow servers in private networks and on this machine.",
    ),
)


@dataclass(frozen=True, slots=True)
class Answers:
    """What the user said on the command line; the rest is asked for."""

    name: str | None
    address: str | None
    invitation: Invitation | None
    servers: tuple[ServerAddress, ...]
    auth_key: AuthKey | None
    doors: tuple[ServerAddress, ...]
    dht: bool | None
    price: Difficulty
    no_passphrase: bool
    agent: bool
    allow_private_targets: bool
    connecting: Connecting = DIRECTLY

    @property
    def lock(self) -> Locked:
        """Return how the key is to be locked."""
        if self.no_passphrase and self.agent:
            raise click.UsageError("--no-passphrase and --agent exclude each other")
        if self.agent:
            return Locked.AGENT
        return Locked.NOTHING if self.no_passphrase else Locked.PASSPHRASE

    @property
    def names_residence(self) -> bool:
        """Return whether the user said where he is at home."""
        said = (self.invitation, self.servers, self.auth_key, self.doors)
        return any(said)

    def wish(self, name: str | None = None, address: str | None = None) -> Wish:
        """Return what is wanted, asking for what is missing; a given name is the proposal."""
        wanted = self.name or _ask("Your name", str.strip, name)
        invitation = self.invitation
        if not self.names_residence:
            invitation = _ask(
                "The invitation code from your operator (Enter if you have none)",
                lambda text: Invitation.parse(text) if text else None,
                "",
            )
        domain = "" if invitation is None else invitation.domain
        claimed = self.address or _ask(
            f"Your mail address{f' (name, or name@{domain})' if domain else ''}",
            lambda text: normal_address(text if "@" in text or not domain else f"{text}@{domain}"),
            address,
        )
        residence = self.residence(invitation)
        return Wish(
            wanted,
            claimed,
            residence,
            self.price,
            self.lock,
            self.allow_private_targets,
            self.connecting,
            isinstance(residence, Account) and self._wants_dht(),
        )

    def _wants_dht(self) -> bool:
        """Return whether to be found in the DHT too; where nobody can be asked, not."""
        if self.dht is not None:
            return self.dht
        return sys.stdin.isatty() and click.confirm(
            "Publish your key and address in the DHT too? Anybody can look there",
            default=False,
        )

    def residence(self, invitation: Invitation | None = None) -> Residence:
        """Return where the user is at home, asking for what is missing."""
        invitation = invitation or self.invitation
        if self.doors:
            if invitation is not None or self.servers or self.auth_key or self.dht is not None:
                raise click.UsageError(
                    "--entangled is a home without a server and an account, in the DHT anyway"
                )
            return Doors(tuple(dict.fromkeys(self.doors)))
        if invitation is not None:
            if self.servers or self.auth_key:
                raise click.UsageError("an invitation names server and auth key itself")
            return Account.invited(invitation)
        servers = self.servers or (_ask("Your server (HOST:PORT)", ServerAddress.parse),)
        auth_key = self.auth_key or _ask(
            "The auth key your operator gave you", AuthKey, hidden=True
        )
        return Account(servers, auth_key)


def settling_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that ``Answers`` is made of."""
    command = ways_out_options(command)
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def invitation_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Let the invitation also stand alone on the command line."""
    return click.argument("code", type=INVITATION, required=False, metavar=f"[{PREFIX}...]")(
        command
    )


def settle(member: Member, passphrase: str | None, as_json: bool) -> None:
    """Publish a new identity, and tell the user what he has now, published or not."""
    settings = member.settings
    row = {
        "key_id": settings.key_id.hex,
        "user_id": settings.user_id,
        "address": settings.address,
        "transport": str(settings.transport),
        "revocation_certificate": str(member.home.revocation_file),
    }
    if not as_json:
        _tell_key(member)

    def known() -> str | None:
        return passphrase

    with open_desk(member.home, alone=True, watcher=watcher(), ask=known) as desk:
        try:
            tell_doubts(asyncio.run(publish_everywhere(desk)))
        except (ClientError, NetworkError):
            show({**row, "published": False}, as_json, lambda: None)
            click.echo("it is made, but not published: `sealmail init` goes on with it", err=True)
            raise
    published = f"published on {settings.transport}: others find you as {settings.address}"
    show({**row, "published": True}, as_json, lambda: click.echo(published))


def _tell_key(member: Member) -> None:
    click.echo(f"your key is {member.settings.key_id}")
    click.echo(f"its revocation certificate is {member.home.revocation_file}:")
    click.echo("  keep a copy where nobody else finds it; it ends the key if you ever must")


def _ask(
    question: str,
    parse: Callable[[str], Any],
    proposal: str | None = None,
    *,
    hidden: bool = False,
) -> Any:
    """Ask until the answer can be read."""

    def read(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    try:
        return click.prompt(
            question,
            default=proposal,
            value_proc=read,
            hide_input=hidden,
            show_default=bool(proposal),
        )
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)
        raise click.UsageError(
            f"nobody is there to answer {question!r}: give all answers as options"
        ) from None
