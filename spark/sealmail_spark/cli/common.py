"""What all audits share: the stores, where Spark runs, what is kept and when they fail."""

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import click

from sealmail_protocol.dates import parse_date
from sealmail_spark.history import History
from sealmail_spark.prices import Market
from sealmail_spark.reading import Wish
from sealmail_spark.results import Tolerance, readable

Command = Callable[..., Any]

# What is wrong with the question, apart from what is wrong with the stores (1).
WRONG_QUESTION = 2


@dataclass(frozen=True, slots=True)
class Order:
    """How an audit is to be run and what is to be done with what it finds."""

    paths: tuple[Path, ...]
    master: str | None
    wish: Wish
    out: Path | None
    history: History | None
    fail_on: Tolerance
    most: int
    as_json: bool

    @property
    def watched(self) -> bool:
        """Tell whether somebody would see a bar of progress."""
        return sys.stderr.isatty() and not self.as_json


def fail(reason: object) -> NoReturn:
    """Tell what is wrong with the question and end."""
    click.echo(f"sealmail-audit: {readable(str(reason))}", err=True)
    sys.exit(WRONG_QUESTION)


def _tolerance(text: str) -> Tolerance:
    try:
        return Tolerance.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _moment(text: str) -> int:
    if text == "now":
        return int(datetime.now(UTC).timestamp())
    try:
        return int(parse_date(text).timestamp())
    except ValueError as error:
        raise click.BadParameter(f"{error}, nor now") from error


_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)
_NEW_DIRECTORY = click.Path(file_okay=False, path_type=Path)

master_option = click.option(
    "--master", help="Where Spark runs: local[2], spark://HOST:7077, sc://HOST."
)
_OPTIONS = (
    master_option,
    click.option(
        "--signatures",
        type=click.FloatRange(0, 1),
        default=1.0,
        show_default=True,
        help="Which share of the signatures to verify; with 0 keys are not read either.",
    ),
    click.option(
        "--as-of",
        type=_moment,
        metavar="DATE",
        help="The present of the audit, or now. By default the last that each store knew of.",
    ),
    click.option(
        "--out",
        type=_NEW_DIRECTORY,
        help="Write findings and figures into this directory, as Parquet and JSON.",
    ),
    click.option(
        "--history",
        type=_NEW_DIRECTORY,
        help="Add this run to a directory of earlier ones, and compare with them.",
    ),
    click.option(
        "--fail-on",
        type=_tolerance,
        default="fault:0",
        show_default=True,
        metavar="SEVERITY[:COUNT]",
        help="Exit with 1 for more findings than COUNT as bad or worse: fault, warning, notice.",
    ),
    click.option(
        "--show",
        "most",
        type=click.IntRange(0, 10_000),
        default=20,
        show_default=True,
        help="How many findings to print.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts."),
)
_STORES = click.argument("paths", nargs=-1, required=True, metavar="STORE...", type=_DIRECTORY)
_MORE_STORES = click.option(
    "--store", "paths", multiple=True, type=_DIRECTORY, help="A store; may be repeated."
)


def audit_options(command: Command | None = None, *, stores_required: bool = True) -> Command:
    """Give a command the options of an audit, and hand it one ``Order``."""
    if command is None:
        return functools.partial(audit_options, stores_required=stores_required)

    @functools.wraps(command)
    def ordered(
        paths: tuple[Path, ...],
        master: str | None,
        signatures: float,
        as_of: int | None,
        out: Path | None,
        history: Path | None,
        fail_on: Tolerance,
        most: int,
        as_json: bool,
        **others: Any,
    ) -> Any:
        wish = Wish(signatures=signatures, seen=as_of)
        past = History(history) if history else None
        order = Order(paths, master, wish, out, past, fail_on, most, as_json)
        return command(order=order, **others)

    given: Command = ordered
    for option in (*reversed(_OPTIONS), _STORES if stores_required else _MORE_STORES):
        given = option(given)
    return given


def prices_options(command: Command) -> Command:
    """Give a command the assumptions that prices are computed from, as one ``Market``."""

    @functools.wraps(command)
    def priced(bench: Path | None, mails: int, patience: float, **others: Any) -> Any:
        measured = Market.benched(bench) if bench else Market.here()
        return command(market=replace(measured, mails=mails, patience=patience), **others)

    given: Command = priced
    for option in (
        click.option(
            "--pow-bench",
            "bench",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="What `sealmail pow bench --json` printed; by default this machine is measured.",
        ),
        click.option(
            "--mails",
            type=click.IntRange(1),
            default=1_000_000,
            show_default=True,
            help="How many mails the sender of many sends.",
        ),
        click.option(
            "--patience",
            type=click.FloatRange(0, min_open=True),
            default=1.0,
            show_default=True,
            help="Core-seconds that a mail may cost an honest sender, for the recommended price.",
        ),
    ):
        given = option(given)
    return given
