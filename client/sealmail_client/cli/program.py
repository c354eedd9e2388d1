"""What all commands share: errors that end in an exit code, progress, JSON, the desk."""

import json
import logging
import select
import sqlite3
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from unicodedata import category

import click

from sealmail_client.desk import Desk, open_desk
from sealmail_client.errors import ClientError
from sealmail_client.household import Household, Member
from sealmail_client.passphrases import ask_passphrase
from sealmail_client.progress import Nobody, Watcher
from sealmail_net.errors import ForbiddenTarget, NetworkError, NoServerReached, PinChanged
from sealmail_net.ways import Way
from sealmail_verify import Undecided

# A network that fails is worth another try, unlike a wrong wish.
NETWORK_EXIT_CODE = 3
# A full disk, a missing permission: nothing that was recorded is lost, mend it and try again.
MACHINE_EXIT_CODE = 5
# A round of `fetch --watch` in the same home is mostly over in less.
_PATIENCE = 5.0
# No command says so much in one sentence; click would cut it off where a line ends.
_WHOLE_SENTENCE = 500

_UNSHOWN = "\N{REPLACEMENT CHARACTER}"

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")


class Commands(click.Group):
    """Commands that are listed with their whole first sentence, wrapped where it is long."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands below the options."""
        rows = [
            (name, command.get_short_help_str(_WHOLE_SENTENCE))
            for name, command in sorted(self.commands.items())
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class Program(Commands):
    """Commands whose errors are told to the user as one text and an exit code."""

    def invoke(self, context: click.Context) -> Any:
        """Run a command; what is expected to go wrong does so without a traceback."""
        _tell_warnings()
        try:
            return super().invoke(context)
        except ClientError as error:
            _fail(error, error.exit_code)
        except (NetworkError, Undecided) as error:
            _fail(error, NETWORK_EXIT_CODE, *_ways_out(error))
        except (OSError, sqlite3.Error, MemoryError) as error:
            if reader_has_left(error):
                # click ends quietly then, as programs in a pipe do.
                raise
            _fail(error, MACHINE_EXIT_CODE)


def reader_has_left(error: Exception) -> bool:
    """Return whether what was printed found no reader any more, as before ``| head``."""
    if not isinstance(error, BrokenPipeError):
        return False
    # Another pipe may be the broken one.
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    return bool(output.poll(0))


def _ways_out(error: Exception) -> list[str]:
    """Return the commands that help when the network fails for a reason the user can judge."""
    reasons = error.reasons if isinstance(error, NoServerReached) else (error,)
    ways = [
        f"once the operator has confirmed it: sealmail server accept {one.address} {one.new.hex()}"
        + " --exit" * (one.way == Way.EXIT)
        for one in reasons
        if isinstance(one, PinChanged)
    ]
    if any(isinstance(one, ForbiddenTarget) for one in reasons):
        ways.append("if that is meant: sealmail identity set --allow-private-targets")
    return ways


class _Warnings(logging.Handler):
    """Tells the user what went on although it was not as it should be."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(f"warning: {readable(record.getMessage())}", err=True)


def _tell_warnings() -> None:
    for name in ("sealmail_client", "sealmail_net"):
        logger = logging.getLogger(name)
        if not any(isinstance(told, _Warnings) for told in logger.handlers):
            logger.addHandler(_Warnings(logging.WARNING))


def _fail(error: Exception, exit_code: int, *ways_out: str) -> None:
    for line in (f"sealmail: {error}", *ways_out):
        click.echo(readable(line), err=True)
    sys.exit(exit_code)


def watcher() -> Watcher:
    """Return bars for a user at a terminal, nothing for a pipe."""
    if not sys.stderr.isatty():
        return Nobody()
    # Imported here: it is a fifth of the program's start, which scripts need not wait for.
    from sealmail_client.cli.bars import Bars

    return Bars()


@dataclass(frozen=True, slots=True)
class Start:
    """What the program was started with: a home, and which identity in it is meant."""

    household: Household
    identity: str | None

    def member(self) -> Member:
        """Return that identity."""
        return self.household.choose(self.identity)


def desk_of(
    context: click.Context,
    *,
    alone: bool = True,
    ask: Callable[[], str | None] = ask_passphrase,
) -> AbstractContextManager[Desk]:
    """Open the desk of the identity that the program was started for."""
    start: Start = context.obj
    return open_desk(
        start.member().home, alone=alone, watcher=watcher(), ask=ask, patience=_PATIENCE
    )


def show(value: object, as_json: bool, tell: Callable[[], object]) -> None:
    """Print ``value`` as JSON, or let ``tell`` print it for people."""
    if as_json:
        # In ASCII: what strangers wrote then cannot steer a terminal either.
        click.echo(json.dumps(value, indent=2))
    else:
        tell()


def readable(text: str) -> str:
    """Return text of strangers without what could steer a terminal."""
    return "".join(
        c if c.isprintable() or c in "\n\t" or category(c) == "Zs" else _UNSHOWN
        for c in text.replace("\r\n", "\n")
    )


def tell_doubts(doubts: tuple[str, ...] | list[str]) -> None:
    """Print what was left out and why, apart from the result."""
    for doubt in doubts:
        click.echo(f"note: {readable(doubt)}", err=True)
