"""``sealmaild account``: auth keys made, given, listed and removed."""

import re
import sys
from pathlib import Path
from typing import Any

import click

from sealmail_protocol.command_codec import MAX_GENERATED
from sealmail_server.accounts import SHORT_AUTH_KEY, AccountState
from sealmail_server.cli.common import Commands, ask, data_option, json_option, print_json

_NAME = re.compile(r"[0-9A-Za-z]{8,40}")


def _userid(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is not None and not _NAME.fullmatch(value):
        raise click.BadParameter("a userid is a key id, or 8 to 40 letters and digits")
    return value


@click.group(cls=Commands)
def account() -> None:
    """Make, list and remove accounts, whether the server is running or not."""


@account.command()
@click.argument("userid", callback=_userid)
@data_option
@click.option("--auth-key-stdin", is_flag=True, help="Read a chosen auth key from stdin.")
@json_option
def add(userid: str, data: Path, auth_key_stdin: bool, as_json: bool) -> None:
    """Make an account for USERID, a key id of 40 hex digits, and print its auth key."""
    chosen = _chosen_key() if auth_key_stdin else None
    made = ask(data, do="account add", userid=userid, auth_key=chosen)
    if made["short"]:
        click.echo(
            f"sealmaild: warning: an auth key of fewer than {SHORT_AUTH_KEY} characters can be"
            " found by trying, if the store is ever stolen",
            err=True,
        )
    if as_json:
        print_json(made)
    elif not chosen:
        click.echo(made["auth_key"])


@account.command()
@click.argument("count", type=click.IntRange(1, MAX_GENERATED), default=1)
@data_option
@json_option
def generate(count: int, data: Path, as_json: bool) -> None:
    """Make COUNT auth keys; each belongs to the first user who logs in with it."""
    keys = ask(data, do="account generate", count=count)
    if as_json:
        print_json(keys)
        return
    for key in keys:
        click.echo(key)


@account.command()
@data_option
@click.option("--user", "userid", callback=_userid, help="Invite the owner of this key only.")
@json_option
def invite(data: Path, userid: str | None, as_json: bool) -> None:
    """Make an account, and print one code that 'sealmail init' accepts."""
    made = ask(data, do="account invite", userid=userid)
    if as_json:
        print_json(made)
    else:
        click.echo(made["code"])


@account.command("list")
@data_option
@json_option
def list_accounts(data: Path, as_json: bool) -> None:
    """List userids with the state of their auth keys; of a key only a name is kept."""
    rows = ask(data, do="account list")
    if as_json:
        print_json(rows)
        return
    for row in rows:
        click.echo(_line(row))


@account.command()
@click.argument("userid", required=False, callback=_userid)
@data_option
@click.option("--key", help="Remove one auth key only, by the name that 'account list' shows.")
@json_option
def remove(userid: str | None, data: Path, key: str | None, as_json: bool) -> None:
    """Disable all auth keys of USERID, or one, for good; who is logged in with one is cut off."""
    if (userid is None) == (key is None):
        raise click.UsageError("name either a USERID or a --key")
    if key is not None and not re.fullmatch(r"[0-9A-Fa-f]{8,64}", key):
        raise click.BadParameter("8 to 64 hex digits", param_hint="--key")
    removed = ask(data, do="account remove", userid=userid, key=key)
    if as_json:
        print_json(removed)
        return
    for row in removed:
        click.echo(_line(row))


def _line(row: dict[str, Any]) -> str:
    userid = row["userid"] or str(AccountState.UNDEFINED)
    return f"{userid:<40}  {row['state']:<11}  {row['key']}  {row['changed']}"


def _chosen_key() -> str:
    key = sys.stdin.readline(100).strip()
    if not _NAME.fullmatch(key):
        raise click.UsageError("an auth key is 8 to 40 letters and digits")
    return key
