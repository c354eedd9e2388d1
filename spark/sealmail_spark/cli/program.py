"""The commands of ``sealmail-audit``."""

import json
import sys
from typing import Any

import click

from sealmail_spark.audits import JOBS, kept
from sealmail_spark.cli.common import Order, audit_options, fail
from sealmail_spark.reading import Tables
from sealmail_spark.results import Summary, worst_first, write_results
from sealmail_spark.session import open_session
from sealmail_spark.store_files import UnreadableStore


class Program(click.Group):
    """Commands that end in one text and an exit code when the question was wrong."""

    def invoke(self, context: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(context)
        except (UnreadableStore, OSError) as error:
            fail(error)


@click.group(cls=Program)
def main() -> None:
    """Audit block stores: live ones, backups, and directories of many.

    A STORE is a store's directory, the data directory of a sealmaild, a directory of several, or
    an export. Exit code 0: no more findings than --fail-on bears; 1: more; 2: the question is
    wrong.
    """


@main.command()
@audit_options
def store(order: Order) -> None:
    """Examine every block: key, stamp, date, size, digest, bytes and signature."""
    run_job("store", order)


def run_job(name: str, order: Order) -> None:
    """Run a job, keep what it found, tell it, and end with the exit code for it."""
    spark = open_session(order.master, watched=sys.stderr.isatty() and not order.as_json)
    audit = JOBS[name](Tables(spark, order.paths, order.wish))
    findings = kept(audit.findings)
    summary = Summary.of(findings)
    if order.out is not None:
        write_results(order.out, findings, audit.figures)
    shown = worst_first(findings, order.most) if order.most else []
    if order.as_json:
        counts = [
            {"job": job, "severity": severity, "code": code, "count": count}
            for (job, severity, code), count in summary.by_code.items()
        ]
        click.echo(json.dumps({"summary": counts, "findings": shown}, indent=2))
    else:
        _tell(summary, shown)
    if order.fail_on.exceeded_by(summary):
        sys.exit(1)


def _tell(summary: Summary, shown: list[dict[str, Any]]) -> None:
    if not summary.by_code:
        click.echo("nothing is wrong")
        return
    for (job, severity, code), count in summary.by_code.items():
        click.echo(f"{count:9} {severity:8} {job}: {code}")
    click.echo()
    for row in shown:
        where = " ".join(str(row[name]) for name in ("store", "type", "key") if row[name])
        click.echo(f"{row['code']}: {where}: {row['detail']}")
    left = sum(summary.by_code.values()) - len(shown)
    if left > 0 and shown:
        click.echo(f"... and {left} more; --out DIR writes all of them")
