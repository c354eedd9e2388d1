"""``sealmaild``: the operator's program."""

import asyncio
import json
import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from sealmail_server.accounts import AccountState, add_account, new_auth_key
from sealmail_server.config import DEFAULT_LISTEN, STORE_NAME, BadConfig, Config, Listen
from sealmail_server.service import run_server, utc_now
from sealmail_server.setting_up import set_up
from sealmail_store import Account, BlockStore, StoreError, WriteView

T = TypeVar("T")

_HOST_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z.:-]{0,252}")

data_option = click.option(
    "--data",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    envvar="SEALMAILD_DATA",
    help="The server's directory (also from SEALMAILD_DATA).",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sealmail", prog_name="sealmaild")
def main() -> None:
    """Run a Sealmail server and look after it."""


@main.command()
@data_option
@click.option("--listen", default=DEFAULT_LISTEN, show_default=True, help="HOST:PORT to serve.")
@click.option(
    "--name", default="localhost", show_default=True, help="Host name, for the certificate."
)
def init(data: Path, listen: str, name: str) -> None:
    """Make a new server: configuration, TLS key and certificate, store, first auth keys."""
    if not _HOST_NAME.fullmatch(name):
        raise click.BadParameter(f"{name!r} is not a host name", param_hint="--name")
    keys = _or_fail(lambda: set_up(data, Listen.parse(listen), name, utc_now()))
    click.echo(f"administrator auth key: {keys.administrator}")
    click.echo(f"replication auth key: {keys.replication}")
    click.echo(
        f"These keys are shown this once. Next: sealmaild account generate --data {data},"
        f" then sealmaild run --data {data}",
        err=True,
    )


@main.command()
@data_option
@click.option("-v", "--verbose", is_flag=True, help="Log every block that is taken or refused.")
def run(data: Path, verbose: bool) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(message)s",
        stream=sys.stderr,
    )
    config = _or_fail(lambda: Config.load(data))

    def announce(listen: Listen) -> None:
        click.echo(f"sealmaild: listening on {listen}")
        sys.stdout.flush()

    _or_fail(lambda: asyncio.run(run_server(data, config, announce)))


@main.group()
def account() -> None:
    """Make and list accounts, while the server is not running."""


@account.command()
@click.argument("count", type=click.IntRange(1, 1000), default=1)
@data_option
def generate(count: int, data: Path) -> None:
    """Make COUNT auth keys; each belongs to the first user who logs in with it."""
    keys = [new_auth_key() for _ in range(count)]

    def add_all(view: WriteView) -> None:
        for key in keys:
            add_account(view, key, None, utc_now())

    _change(data, add_all)
    for key in keys:
        click.echo(key)


@account.command()
@click.argument("userid")
@data_option
def add(userid: str, data: Path) -> None:
    """Make an account for USERID, a key id of 40 hex digits, and print its auth key."""
    if not re.fullmatch(r"[0-9A-Za-z]{8,40}", userid):
        raise click.BadParameter("8 to 40 letters and digits", param_hint="USERID")
    key = new_auth_key()
    _change(data, lambda view: add_account(view, key, userid, utc_now()))
    click.echo(key)


@account.command("list")
@data_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def list_accounts(data: Path, as_json: bool) -> None:
    """List userids with the state of their auth keys; the keys themselves are not kept."""
    accounts: tuple[Account, ...] = _change(data, lambda view: view.accounts())
    if as_json:
        rows = [{"userid": each.userid, "state": each.state} for each in accounts]
        click.echo(json.dumps(rows))
        return
    for each in accounts:
        click.echo(f"{each.userid or AccountState.UNDEFINED:<40}  {each.state}")


def _change(data: Path, work: Callable[[WriteView], T]) -> T:
    async def with_store() -> T:
        async with BlockStore.open(data / STORE_NAME) as store:
            return await store.write(work)

    _or_fail(lambda: Config.load(data))
    return _or_fail(lambda: asyncio.run(with_store()))


def _or_fail(action: Callable[[], T]) -> T:
    """Run ``action``; what an operator can mend is one line on stderr and exit code 1."""
    try:
        return action()
    except (BadConfig, StoreError, OSError) as error:
        click.echo(f"sealmaild: {error}", err=True)
        sys.exit(1)
