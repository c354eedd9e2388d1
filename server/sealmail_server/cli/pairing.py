"""``sealmaild pair``: two servers become one pair, by a code that is pasted once."""

import time
from pathlib import Path
from typing import Any

import click

from sealmail_server.cli.common import ask, data_option, json_option, print_json

# A short copy is soon over, and a long one needs no line every moment.
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 1.0
_SYNC = "sync"


@click.command()
@click.argument("code", required=False)
@data_option
@click.option(
    "--address",
    metavar="HOST:PORT",
    help="Where the other server reaches this one; default: its name and port.",
)
@json_option
def pair(code: str | None, data: Path, address: str | None, as_json: bool) -> None:
    """Make this server and another one a pair that holds the same mail.

    Without CODE, print one; it holds for an hour. With the CODE of the other server, become its
    partner, and show how what either side holds is copied. With the word 'sync' instead of a
    code, compare both servers again, and have each send what the other lacks.
    """
    if code is None:
        offered = ask(data, do="pair offer", address=address)
        if as_json:
            print_json(offered)
        else:
            click.echo(offered["code"])
        return
    if code == _SYNC:
        ask(data, do="pair sync")
    else:
        made = ask(data, do="pair join", code=code, address=address)
        click.echo(f"paired with {made['partner']}", err=True)
    _follow(data, as_json)


def _follow(data: Path, as_json: bool) -> None:
    """Show how far the copying has got, until this server has nothing more to send."""
    shown, pause = "", _FIRST_PAUSE
    while True:
        found = ask(data, do="pair status")
        waiting = sum(found["queued"].values())
        if found["comparing"] is None and not waiting:
            break
        line = _line(found, waiting)
        if line != shown:
            click.echo(line, err=True)
        shown = line
        time.sleep(pause)
        pause = min(1.5 * pause, _LONGEST_PAUSE)
    if as_json:
        print_json(found)
    else:
        click.echo(f"{found['partner']} has all that this server holds")


def _line(found: dict[str, Any], waiting: int) -> str:
    comparing = found["comparing"]
    if not found["connected"]:
        return f"{found['partner']} is not connected ({found['reason']}); {waiting} wait for it"
    compared = 100 if comparing is None else comparing["percent"]
    return f"compared {compared} %, {waiting} to be sent"
