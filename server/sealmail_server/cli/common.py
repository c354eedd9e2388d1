"""What all commands share: the data directory, exit codes, and the way to the one writer."""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any, TypeVar

import click

from sealmail_server.account_desk import AccountDesk
from sealmail_server.clock_guard import ClockGuard
from sealmail_server.config import STORE_NAME, Config
from sealmail_server.operator import Operator, OperatorError, Request
from sealmail_server.operator_socket import NoServerRuns, ask_running_server
from sealmail_server.partnership import Partnership
from sealmail_server.service import utc_now
from sealmail_server.setting_rules import BadConfig
from sealmail_server.tls_identity import BadIdentity
from sealmail_store import BlockStore, StoreError, StoreLocked

T = TypeVar("T")

# A server that is starting or stopping has the lock but no socket; that takes a moment.
_PATIENCE_SECONDS = 10.0
_PAUSE_SECONDS = 0.1
# No command says so much in one sentence; click would cut it off where a line ends.
_WHOLE_SENTENCE = 500


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


class Exit(IntEnum):
    """Exit codes; click itself ends with 2 when it is called wrongly."""

    FAILED = 1
    BAD_CONFIG = 3
    STORE_UNAVAILABLE = 4
    UNWELL = 5


_EXITS: dict[type[Exception], Exit] = {
    BadConfig: Exit.BAD_CONFIG,
    BadIdentity: Exit.BAD_CONFIG,
    StoreError: Exit.STORE_UNAVAILABLE,
    OperatorError: Exit.FAILED,
    OSError: Exit.FAILED,
}

data_option = click.option(
    "--data",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    envvar="SEALMAILD_DATA",
    help="The server's directory (also from SEALMAILD_DATA).",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")


def or_fail(action: Callable[[], T]) -> T:
    """Run ``action``; what an operator can mend is one line on stderr and an exit code."""
    try:
        return action()
    except tuple(_EXITS) as error:
        click.echo(f"sealmaild: {error}", err=True)
        sys.exit(next(code for kind, code in _EXITS.items() if isinstance(error, kind)))


def ask(data: Path, **request: Any) -> Any:
    """Have a request fulfilled by the running server, or on the store if none is running."""
    directory = data.absolute()
    return or_fail(lambda: _ask(directory, Config.load(directory), request))


def print_json(value: Any) -> None:
    """Print a value for scripts."""
    click.echo(json.dumps(value, indent=2))


def _ask(directory: Path, config: Config, request: Request) -> Any:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return ask_running_server(directory, request)
        except NoServerRuns:
            pass
        try:
            return asyncio.run(_on_the_store(directory, config, request))
        except StoreLocked:
            if time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_SECONDS)


async def _on_the_store(directory: Path, config: Config, request: Request) -> Any:
    async with BlockStore.open(directory / STORE_NAME) as store:
        guard = ClockGuard(store, utc_now)
        await guard.look()
        partnership = Partnership(config.second_server, config.partner_queue_blocks)
        desk = AccountDesk(store, utc_now, partnership=partnership)
        return await Operator(directory, config, store, desk, guard, utc_now).fulfil(request)
