"""``sealmail init``: a key pair, an account, and a first word to the world."""

from dataclasses import replace
from typing import Any, get_args

import click

from sealmail_client.cli.program import Start, json_option
from sealmail_client.cli.settling import Answers, invitation_argument, settle, settling_options
from sealmail_client.cli.ways_out import ways_out
from sealmail_client.connecting import DIRECTLY
from sealmail_client.creation import create_identity, move_in
from sealmail_client.desk import open_desk, utc_now
from sealmail_client.household import Household, Member
from sealmail_client.keyring import Algorithm
from sealmail_client.passphrases import ask_new_passphrase, ask_passphrase
from sealmail_client.profile import ProfileExists
from sealmail_client.settings import Locked
from sealmail_protocol.invitations import Invitation

algorithm_option = click.option(
    "--algorithm",
    type=click.Choice(get_args(Algorithm)),
    default="ed25519",
    show_default=True,
    help="The kind of key; original Confidant Mail clients with GnuPG 1.4 need rsa3072.",
)


@click.command()
@invitation_argument
@settling_options
@algorithm_option
@json_option
@click.pass_context
def init(
    context: click.Context,
    /,
    code: Invitation | None,
    algorithm: Algorithm,
    as_json: bool,
    **said: Any,
) -> None:
    """Make a first identity: a key pair and an account, published on the home server.

    What is not said by options is asked for. If publishing failed, the same command goes on.
    """
    start: Start = context.obj
    answers = answered(code, said)
    members = start.household.members()
    if not members:
        create(start.household, answers, algorithm, as_json)
        return
    unfinished = [member for member in members if not is_published(member)]
    if not unfinished:
        raise ProfileExists(
            f"{start.household.path} holds an identity already: a further one is made by "
            "`sealmail identity create`, and `sealmail key publish` publishes this one again"
        )
    go_on(unfinished[-1], answers, as_json)


def answered(code: Invitation | None, said: dict[str, Any]) -> Answers:
    """Return what was said on the command line."""
    connecting = ways_out(said, DIRECTLY)
    said["invitation"] = code or said["invitation"]
    return Answers(**said, connecting=connecting)


def create(household: Household, answers: Answers, algorithm: Algorithm, as_json: bool) -> None:
    """Make and publish an identity with a new key."""
    wish = answers.wish()
    passphrase = ask_new_passphrase() if wish.lock is Locked.PASSPHRASE else None
    try:
        member = create_identity(household, wish, passphrase, algorithm, utc_now)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    settle(member, passphrase, as_json)


def go_on(member: Member, answers: Answers, as_json: bool) -> None:
    """Publish an identity whose first try failed, with another account if one is named."""
    settings = member.settings
    if answers.address not in (None, settings.address):
        raise ProfileExists(
            f"{settings.address} is made but not published: finish it by `sealmail init` alone, "
            "or make a further identity by `sealmail identity create`"
        )
    click.echo(f"going on with {settings.address}, which is not published yet", err=as_json)
    changed = replace(
        settings,
        allow_private_targets=settings.allow_private_targets or answers.allow_private_targets,
        connecting=settings.connecting if answers.connecting == DIRECTLY else answers.connecting,
    )
    if changed != settings:
        member = replace(member, settings=changed)
        member.home.save(changed)
    if answers.names_residence:
        member = move_in(member, answers.residence(), utc_now)
    passphrase = ask_passphrase() if settings.passphrase is Locked.PASSPHRASE else None
    settle(member, passphrase, as_json)


def is_published(member: Member) -> bool:
    """Return whether the home server has ever taken this identity's address."""
    with open_desk(member.home, alone=False) as desk:
        own = desk.own_blocks
        return own.revoked or own.published
