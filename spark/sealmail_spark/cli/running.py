"""From audits to what is left of them: files, history, a summary and an exit code."""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sealmail_spark.audits import Audit, kept, trouble_findings
from sealmail_spark.cli.common import Order
from sealmail_spark.findings import all_of
from sealmail_spark.history import Question
from sealmail_spark.reading import Tables
from sealmail_spark.report import ALL_USERS, MOST_USERS, RANKING_OF_USERS, Figure, Report
from sealmail_spark.results import Summary, readable, worst_first, write_results

# A page is read by people; what is beyond stands in the files.
_EVIDENCE = 200


@dataclass(frozen=True, slots=True)
class Run:
    """What audits found, in a form that can be read more than once."""

    spark: SparkSession
    order: Order
    made: datetime
    stores: tuple[str, ...]
    jobs: tuple[str, ...]
    findings: DataFrame
    figures: DataFrame
    summary: Summary


@dataclass(frozen=True, slots=True)
class Unseen:
    """What nobody looked at: not in the sample, or there was nothing to verify it by."""

    signatures: int
    keys: int

    @classmethod
    def of(cls, figures: DataFrame) -> Self:
        """Sum up the figures that tell."""
        signed = F.col("measure").isin("signature", "DHT signature")
        left_out = signed & F.col("group").endswith(" left out")
        counts = [
            F.sum(F.when(told, F.col("value")).otherwise(0.0))
            for told in (left_out, F.col("measure") == "keys not read")
        ]
        signatures, keys = figures.agg(*counts).collect()[0]
        return cls(int(signatures or 0), int(keys or 0))


def finish(
    spark: SparkSession,
    order: Order,
    tables: Tables | None,
    audits: Mapping[str, Audit],
    also: Callable[[Run], object] = lambda run: None,
) -> None:
    """Compute audits, leave what was ordered, do ``also``, and exit with 1 if it is too bad."""
    made, stores = datetime.now(UTC), tables.names() if tables else ()
    findings = {name: kept(audit.findings) for name, audit in audits.items()}
    figures = {name: kept(audit.figures) for name, audit in audits.items()}
    if tables is not None and tables.troubles:
        findings["troubles"] = trouble_findings(tables)
    together = all_of(*findings.values())
    figured = all_of(*figures.values())
    summary = Summary.of(together)
    if order.out is not None:
        write_results(order.out, together, figured)
    if order.history is not None:
        claims = next(
            (audit.claims for audit in audits.values() if audit.claims is not None), None
        )
        question = Question(stores, order.wish.signatures)
        order.history.add(together, figured, claims, tuple(audits), question, made)
    also(Run(spark, order, made, stores, tuple(audits), together, figured, summary))
    shown = worst_first(together, order.most) if order.most else []
    _tell(order, summary, shown, Unseen.of(figured))
    for frame in (*findings.values(), *figures.values()):
        frame.unpersist()
    for audit in audits.values():
        audit.release()
    if order.fail_on.exceeded_by(summary):
        sys.exit(1)


def report_of(run: Run) -> str:
    """Return the page about a run."""
    history, question = run.order.history, Question(run.stores, run.order.wish.signatures)
    report = Report(
        made=run.made,
        stores=run.stores,
        summary=run.summary,
        findings=worst_first(run.findings, _EVIDENCE),
        figures=figures_shown(run.figures),
        drift=history.drifts(run.spark, run.jobs, question) if history else (),
        jobs=run.jobs,
    )
    return report.html()


def figures_shown(figures: DataFrame) -> list[Figure]:
    """Return figures summed over stores: of users those with most and the sums of all.

    There may be millions of users; of all else there are as many figures as a page can bear.
    """
    summed = figures.groupBy("job", "measure", "group").agg(F.sum("value").alias("value"))
    of_users = F.col("measure").endswith(" of user")
    users = summed.where(of_users)
    most = users.where(F.col("measure") == RANKING_OF_USERS)
    shown = most.orderBy(F.desc("value"), "group").limit(MOST_USERS).select("group")
    every = users.groupBy("job", "measure").agg(F.sum("value").alias("value"))
    parts = (
        summed.where(~of_users),
        users.join(F.broadcast(shown), ["group"], "left_semi").select(summed.columns),
        every.select("job", "measure", F.lit(ALL_USERS).alias("group"), "value"),
    )
    return [
        (row["job"], row["measure"], row["group"], row["value"])
        for row in all_of(*parts).orderBy(*summed.columns[:3]).collect()
    ]


def _tell(order: Order, summary: Summary, shown: list[dict[str, Any]], unseen: Unseen) -> None:
    if order.as_json:
        counts = [
            {"job": job, "severity": severity, "code": code, "count": count}
            for (job, severity, code), count in summary.by_code.items()
        ]
        told = {
            "summary": counts,
            "findings": shown,
            "signatures_left_out": unseen.signatures,
            "keys_not_read": unseen.keys,
        }
        click.echo(json.dumps(told, indent=2))
        return
    if unseen.signatures:
        click.echo(f"note: {unseen.signatures} signatures were left out", err=True)
    if unseen.keys:
        click.echo(
            f"note: {unseen.keys} keys were not read: whether they have expired or are weak"
            " is not known",
            err=True,
        )
    if not summary.by_code:
        click.echo("nothing is wrong")
        return
    for (job, severity, code), count in summary.by_code.items():
        click.echo(f"{count:9} {severity:8} {job}: {code}")
    click.echo()
    for row in shown:
        where = " ".join(str(row[name]) for name in ("store", "type", "key") if row[name])
        click.echo(readable(f"{row['code']}: {where}: {row['detail']}"))
    left = sum(summary.by_code.values()) - len(shown)
    if left > 0 and shown:
        click.echo(f"... and {left} more; --out DIR writes all of them")
