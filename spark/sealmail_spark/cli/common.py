"""What all audits share: the stores, where Spark runs, what is kept and when they fail."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from sealmail_protocol.dates import parse_date
from sealmail_spark.reading import Wish
from sealmail_spark.results import Tolerance

F = TypeVar("F", bound=Callable[..., Any])

# What is wrong with the question, apart from what is wrong with the stores (1).
WRONG_QUESTION = 2


@dataclass(frozen=True, slots=True)
class Order:
    """How an audit is to be run and what is to be done with what it finds."""

    paths: tuple[Path, ...]
    master: str | None
    wish: Wish
    out: Path | None
    fail_on: Tolerance
    most: int
    as_json: bool


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


_OPTIONS = (
    click.argument(
        "paths",
        nargs=-1,
        required=True,
        metavar="STORE...",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
    ),
    click.option("--master", help="Where Spark runs: local[2], spark://HOST:7077, sc://HOST."),
    click.option(
        "--signatures",
        type=click.FloatRange(0, 1),
        default=1.0,
        show_default=True,
        help="Which share of the signatures to verify.",
    ),
    click.option(
        "--as-of",
        type=_moment,
        metavar="DATE",
        help="The present of the audit, or now. By default the last that each store knew of.",
    ),
    click.option(
        "--out",
        type=click.Path(file_okay=False, path_type=Path),
        help="Write findings and figures into this directory, as Parquet and JSON.",
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
        "--show", "most", type=click.IntRange(0, 10_000), default=20, help="Findings to print."
    ),
    click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts."),
)


def audit_options(function: F) -> F:
    """Give a command the options of an audit, and hand it one ``Order``."""

    def ordered(
        paths: tuple[Path, ...],
        master: str | None,
        signatures: float,
        as_of: int | None,
        out: Path | None,
        fail_on: Tolerance,
        most: int,
        as_json: bool,
        **others: Any,
    ) -> Any:
        wish = Wish(signatures=signatures, seen=as_of)
        order = Order(paths, master, wish, out, fail_on, most, as_json)
        return function(order, **others)

    ordered.__name__ = function.__name__
    ordered.__doc__ = function.__doc__
    ordered.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    for option in reversed(_OPTIONS):
        ordered = option(ordered)
    return ordered  # type: ignore[return-value]


def fail(reason: object) -> None:
    """Tell what is wrong with the question and end."""
    click.echo(f"sealmail-audit: {reason}", err=True)
    sys.exit(WRONG_QUESTION)
