"""Runs every command of an audit in one session, as a program for a cluster.

Given are one store, partners, a ledger and a directory for what is found, exit codes among it.
"""

import json
import sys
from pathlib import Path

from sealmail_spark.cli.program import main
from sealmail_spark.session import close_session, open_session

# A few hundred rows: more parts, and compiling, cost more than they save.
SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
}


def run(*arguments: str) -> int:
    """Run a command; return its exit code."""
    try:
        main(arguments, prog_name="sealmail-audit", standalone_mode=False)
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def every(store: str, partners: str, ledger: str, place: Path) -> dict[str, int]:
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
    codes = {
        name: run(name, *words, "--out", str(place / name), "--show", "0")
        for name, words in asked.items()
    }
    export = str(place / "export")
    codes["export"] = run("export", store, "--to", export)
    codes["of export"] = run("store", export, "--out", str(place / "of export"), "--show", "0")
    return codes


if __name__ == "__main__":
    store, partners, ledger, told = sys.argv[1:]
    place = Path(told)
    spark = open_session()
    for name, value in SMALL.items():
        spark.conf.set(name, value)
    try:
        codes = every(store, partners, ledger, place)
    finally:
        close_session()
    (place / "codes.json").write_text(json.dumps(codes), encoding="utf-8")
