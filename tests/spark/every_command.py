"""Runs every command of an audit in one session, as a program for a cluster.

Given are one store, partners, a ledger and a directory for what is found, exit codes among it;
and options of every command, such as where Spark runs, if the environment does not tell.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from sealmail_spark.cli.program import main
from sealmail_spark.session import close_session, open_session

# A few hundred rows: more parts, and compiling, cost more than they save.
SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def run(*arguments: str) -> int:
    """Run a command; return its exit code."""
    try:
        main(arguments, prog_name="sealmail-audit", standalone_mode=False)
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def hasten(spark: SparkSession | None) -> None:
    """Have a session do little beside its work."""
    if spark is not None:
        for name, value in SMALL.items():
            spark.conf.set(name, value)


def every(
    store: str, partners: str, ledger: str, place: Path, options: Sequence[str]
) -> dict[str, int]:
    """Run all commands but ``generate``; each job writes below ``place`` what it found."""
    asked = {
        "store": (store,),
        "references": (store,),
        "replicas": (partners,),
        "keys": (store,),
        "pow": (store,),
        "delivery": (ledger,),
        "report": (str(place / "report.html"), store),
    }
    codes = {}
    for name, words in asked.items():
        out = ("--out", str(place / name), "--show", "0")
        codes[name] = run(name, *words, *out, *options)
        # The first may have opened the session.
        hasten(SparkSession.getActiveSession())
    export, out = str(place / "export"), ("--out", str(place / "of export"), "--show", "0")
    codes["export"] = run("export", store, "--to", export, *options)
    codes["of export"] = run("store", export, *out, *options)
    return codes


if __name__ == "__main__":
    store, partners, ledger, told, *options = sys.argv[1:]
    place = Path(told)
    if not options:
        hasten(open_session())
    try:
        codes = every(store, partners, ledger, place, options)
    finally:
        close_session()
    (place / "codes.json").write_text(json.dumps(codes), encoding="utf-8")
