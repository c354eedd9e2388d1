"""``sealmaild queue``: what waits for other servers, and what came back."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from sealmail_server.cli.common import Commands, ask, data_option, json_option, print_json

_WAITING = "waiting"


@click.group(cls=Commands)
def queue() -> None:
    """Look after deliveries to other servers, whether the server is running or not."""


@queue.command("list")
@data_option
@click.option("--full", is_flag=True, help="Show where waiting blocks are to go, too.")
@click.option("--all", "every", is_flag=True, help="Show delivered ones, too.")
@json_option
def list_rows(data: Path, full: bool, every: bool, as_json: bool) -> None:
    """List what waits, and the dead letters of the last 14 days."""
    shown = _rows(data, full=full, every=every)
    if as_json:
        print_json(list(shown))
        return
    row = None
    for row in shown:
        click.echo(_line(row))
    if row is None:
        click.echo("nothing waits, and nothing came back", err=True)


@queue.command()
@click.argument("number", type=click.IntRange(1))
@data_option
@json_option
def drop(number: int, data: Path, as_json: bool) -> None:
    """Give up the waiting row NUMBER; its sender finds a dead letter."""
    done = ask(data, do="queue drop", number=number)
    if as_json:
        print_json(done)
    else:
        click.echo(f"row {done['dropped']} is given up")


@queue.command()
@click.argument("number", type=click.IntRange(1), required=False)
@data_option
@json_option
def retry(number: int | None, data: Path, as_json: bool) -> None:
    """Try the waiting row NUMBER now, or all of them."""
    done = ask(data, do="queue retry", number=number)
    if as_json:
        print_json(done)
    else:
        click.echo(f"{done['retried']} to be tried now")


def _rows(data: Path, *, full: bool, every: bool) -> Iterator[dict[str, Any]]:
    """Ask for all rows, page by page."""
    after = None
    while page := ask(data, do="queue list", full=full, all=every, after=after):
        yield from page
        after = [page[-1]["copy"], page[-1]["number"]]


def _line(row: dict[str, Any]) -> str:
    target = row.get("target")
    when = f"next {row['next'] or 'now'}" if row["state"] == _WAITING else f"at {row['last']}"
    line = (
        f"{row['number']:>6}  {row['state']:<9}  {row['code']:<14}  {row['type']:<20}"
        f"  {row['user']}  queued {row['queued']}  {when}  tried {row['attempts']}"
    )
    line = f"{line}  partner's" if row["copy"] else line
    return f"{line}  {target}" if target else line
