"""The commands of ``sealmail-audit``."""

import json
import re
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sealmail_spark.audits import JOBS, Background, audit_delivery
from sealmail_spark.cli.common import Order, audit_options, fail, master_option, prices_options
from sealmail_spark.cli.running import finish, report_of
from sealmail_spark.exporting import export as write_export
from sealmail_spark.jobs.delivery import read_ledgers
from sealmail_spark.prices import Market
from sealmail_spark.reading import Tables, Wish
from sealmail_spark.results import readable
from sealmail_spark.session import open_session
from sealmail_spark.store_index import UnreadableStore

# As Python ends the report of an error of ours that came up in a worker.
_OURS: Final = re.compile(r"^(?:sealmail_[a-z_.]+\.)?(?:UnreadableStore|\w*Error): (.+)$")


class Program(click.Group):
    """Commands that end in one text and an exit code when the question was wrong."""

    def invoke(self, context: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(context)
        except (UnreadableStore, OSError, ValueError) as error:
            fail(error)
        except (PySparkException, Py4JError) as error:
            fail(cause_in(str(error)))


def cause_in(told: str) -> str:
    """Return the one line of Spark's report of a failure that says why."""
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    causes = [found[1] for line in lines if (found := _OURS.search(line))]
    return causes[-1] if causes else next(iter(lines), "Spark failed")


@click.group(cls=Program)
def main() -> None:
    """Audit block stores: live ones, backups, and directories of many.

    A STORE is a store's directory, the data directory of a sealmaild, a directory of several, or
    an export. Exit code 0: no more findings than --fail-on bears; 1: more; 2: the question was
    wrong.
    """


@main.command()
@audit_options
def store(order: Order) -> None:
    """Examine every block: key, stamp, date, size, digest, bytes and signature."""
    run_jobs(["store"], order)


@main.command()
@audit_options
def references(order: Order) -> None:
    """Find data nobody names, mail without its data, what is kept too long; bytes by user."""
    run_jobs(["references"], order)


@main.command()
@audit_options
def replicas(order: Order) -> None:
    """Compare stores that should be equal, such as those of a pair."""
    run_jobs(["replicas"], order)


@main.command()
@audit_options
def keys(order: Order) -> None:
    """Find expired, revoked and weak keys, and addresses that several keys claim."""
    run_jobs(["keys"], order)


@main.command()
@audit_options
@prices_options
def pow(order: Order, market: Market | None) -> None:
    """Weigh what mail has paid, find stamps used twice, and tell what each price costs whom."""
    run_jobs(["pow"], order, market)


@main.command()
@click.argument(
    "ledgers",
    nargs=-1,
    required=True,
    metavar="LEDGER...",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@audit_options(stores_required=False)
def delivery(order: Order, ledgers: tuple[Path, ...]) -> None:
    """Tell how the mail of LEDGERs fared, which `sealmail outbox --export` writes.

    With --store, also how much mail stores had a day: no more can be known from them.
    """
    spark = open_session(order.master, watched=order.watched)
    ledger = read_ledgers(spark, ledgers)
    tables = Tables(spark, order.paths, order.wish) if order.paths else None
    finish(spark, order, tables, {"delivery": audit_delivery(ledger, tables, order.wish.seen)})


@main.command()
@click.argument("html", type=click.Path(dir_okay=False, path_type=Path))
@audit_options
@prices_options
@click.option("--replicas", is_flag=True, help="The stores are partners: compare them, too.")
@click.option(
    "--ledger",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Tell how the mail of this ledger fared, too; may be repeated.",
)
def report(
    html: Path, order: Order, market: Market | None, replicas: bool, ledger: tuple[Path, ...]
) -> None:
    """Run all audits and write one page with plots to HTML."""
    jobs = [name for name in JOBS if name != "replicas" or replicas]
    spark = open_session(order.master, watched=order.watched)
    tables = Tables(spark, order.paths, order.wish)
    background = _background(spark, tables, order, market)
    audits = {name: JOBS[name](tables, background) for name in jobs}
    audits["delivery"] = audit_delivery(read_ledgers(spark, ledger), tables, order.wish.seen)
    finish(
        spark,
        order,
        tables,
        audits,
        lambda run: html.write_text(report_of(run), encoding="utf-8"),
    )


@main.command()
@click.argument(
    "paths",
    nargs=-1,
    required=True,
    metavar="STORE...",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@click.option(
    "--to",
    "target",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The directory of the export; what it has already is not written again.",
)
@master_option
def export(paths: tuple[Path, ...], target: Path, master: str | None) -> None:
    """Write the blocks of stores as Parquet, by type and day, adding only what is new."""
    spark = open_session(master, watched=sys.stderr.isatty())
    tables = Tables(spark, paths, Wish())
    click.echo(f"{write_export(spark, tables, target)} blocks are new")
    for trouble in tables.troubles:
        click.echo(readable(f"{trouble.code}: {trouble.store}: {trouble.detail}"), err=True)
    if tables.troubles:
        sys.exit(1)


@main.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--blocks", type=click.IntRange(20), default=10_000, show_default=True)
@click.option(
    "--faults",
    type=click.IntRange(0),
    default=0,
    help="So many faults of each kind that a store, or with --partners partners, can have.",
)
@click.option(
    "--partners", is_flag=True, help="Make two stores, a and b, each lacking what the other has."
)
@click.option(
    "--values", type=click.IntRange(0), default=0, help="So many values of the DHT beside them."
)
@click.option("--seed", type=int, default=0, help="Another number makes another store.")
def generate(
    directory: Path, blocks: int, faults: int, partners: bool, values: int, seed: int
) -> None:
    """Make a realistic store of invented mail in DIRECTORY, and the list of what is wrong.

    The list is DIRECTORY/seeded.json.
    """
    try:
        from sealmail_spark.generator.making import make_pair, make_store
    except ModuleNotFoundError as error:
        # What writes stores is compiled, and does not travel in a zip.
        fail(f"{error.name} is missing: to generate stores, install sealmail[spark]")
    now = datetime.now(UTC).replace(microsecond=0)
    if partners and values:
        raise click.UsageError("partners keep no values of the DHT for each other: leave one out")
    if partners:
        made = make_pair(directory, blocks, faults=faults, seed=seed, now=now)
    else:
        made = make_store(
            directory / "store", blocks, faults=faults, seed=seed, now=now, values=values
        )
    seeded = [asdict(one) for one in made.seeded]
    (directory / "seeded.json").write_text(json.dumps(seeded, indent=2), encoding="utf-8")
    of_dht = f", {made.values} values of the DHT" if made.values else ""
    click.echo(f"{made.blocks} blocks{of_dht}, {len(seeded)} faults in {directory}")


def run_jobs(names: list[str], order: Order, market: Market | None = None) -> None:
    """Run jobs, keep what they found, tell it, and end with the exit code for it."""
    spark = open_session(order.master, watched=order.watched)
    tables = Tables(spark, order.paths, order.wish)
    background = _background(spark, tables, order, market)
    finish(spark, order, tables, {name: JOBS[name](tables, background) for name in names})


def _background(
    spark: SparkSession, tables: Tables, order: Order, market: Market | None
) -> Background:
    claims = order.history.earlier_claims(spark, tables.names()) if order.history else None
    return Background(market, claims)
