"""``sealmail-audit``: exit codes, files, history and the report."""

import json
import re
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession
from tests.spark.conftest import BLOCKS

from sealmail_spark.cli.program import main
from sealmail_spark.generator.making import Made
from sealmail_spark.results import Summary, Tolerance


def run(*arguments: object) -> Result:
    """Run the program in this process, where Spark is up already."""
    result = CliRunner().invoke(
        main, [str(each) for each in arguments], prog_name="sealmail-audit"
    )
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_the_exit_code_says_whether_too_much_is_wrong(
    spark: SparkSession, made: dict[str, Made], tmp_path: Path
) -> None:
    """Faults fail by default, as many as are borne do not, and results are written either way."""
    del spark
    seeded = made["seeded"].directory
    done = run("store", seeded, "--out", tmp_path / "out", "--signatures", 0)
    assert done.exit_code == 1
    assert "wrong-key" in done.stdout
    assert re.search(r"note: \d+ signatures were left out", done.stderr)
    assert run("store", seeded, "--fail-on", "fault:100", "--json").exit_code == 0
    lines = (tmp_path / "out" / "findings.jsonl").read_text().splitlines()
    written = [json.loads(line) for line in lines]
    assert {row["code"] for row in written} >= {"malformed", "wrong-key", "missing-bytes"}
    assert (tmp_path / "out" / "findings.parquet").is_dir()


def test_a_wrong_question_is_told_apart(spark: SparkSession, tmp_path: Path) -> None:
    """A directory without a store, and a tolerance that is none, end with 2."""
    del spark
    done = run("store", tmp_path)
    assert (done.exit_code, "no store here" in done.stderr) == (2, True)
    assert run("store", tmp_path, "--fail-on", "disaster").exit_code == 2


@pytest.mark.parametrize(
    ("text", "counts", "exceeded"),
    [
        ("fault", {"fault": 0, "warning": 9}, False),
        ("fault:2", {"fault": 3}, True),
        ("warning", {"fault": 1}, True),
        ("notice:5", {"warning": 2, "notice": 3}, False),
    ],
)
def test_what_is_borne(text: str, counts: dict[str, int], exceeded: bool) -> None:
    """Findings as bad or worse are counted together."""
    summary = Summary({("store", severity, "x"): n for severity, n in counts.items()})
    assert Tolerance.parse(text).exceeded_by(summary) is exceeded


def test_generate_makes_a_store_and_the_list_of_its_faults(tmp_path: Path) -> None:
    """The list tells for each fault which job finds it where."""
    done = run("generate", tmp_path / "new", "--blocks", 40, "--faults", 1)
    assert done.exit_code == 0
    seeded = json.loads((tmp_path / "new" / "seeded.json").read_text())
    assert {"job", "code", "type", "key", "held"} == set(seeded[0])
    assert len({(one["held"], one["code"]) for one in seeded}) == len(seeded)


class _Page(HTMLParser):
    """Reads a page, and what it would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        self.tags.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_report_is_one_page_with_plots_and_drift(
    spark: SparkSession, stores: Path, tmp_path: Path
) -> None:
    """It tells findings, levels, ages, sizes, the price of spam and drift, and fetches nothing."""
    del spark
    ledger = tmp_path / "ledger.jsonl"
    ledger.write_text(_ledger())
    page = tmp_path / "report.html"
    options = ("--history", tmp_path / "history", "--signatures", 0, "--fail-on", "fault:9999")
    assert run("keys", stores / "seeded", *options).exit_code == 0
    # A run is known by its second.
    time.sleep(1)
    done = run("report", page, stores / "seeded", *options, "--ledger", ledger)
    assert done.exit_code == 0, done.output
    html = page.read_text()
    read = _Page()
    read.feed(html)
    assert read.fetched == []
    assert "script" not in read.tags
    assert read.tags.count("svg") >= 8
    for told in ("Levels of stamps", "Ages", "Sizes", "Drift", "Recommended SenderProofOfWork"):
        assert told in html
    assert re.search(r"Signatures: \d+ left out\.", html)
    assert re.search(r"\d+ keys were not read", html)
    assert re.search(r"note: \d+ keys were not read", done.stderr)
    assert re.search(r"Rates by the ledger: delivery: 75.0%; acknowledgment: 33.3%", html)
    assert f"{BLOCKS:,}"[0] in html


def _ledger() -> str:
    day = "2026-03-0{}T12:00:00Z"
    rows = [
        (1, "acknowledged", day.format(1), day.format(1), day.format(2)),
        (2, "sent", day.format(1), day.format(2), None),
        (3, "sent", day.format(8), day.format(9), None),
        (4, "waiting", day.format(1), None, None),
    ]
    names = ("message", "state", "composed", "sent", "acknowledged")
    lines = [dict(zip(names, row, strict=True)) | {"recipient": "A" * 40} for row in rows]
    return "".join(json.dumps(line) + "\n" for line in lines)


def test_a_ledger_tells_times_rates_and_what_is_late(spark: SparkSession, tmp_path: Path) -> None:
    """Mail long on its way is a warning; times are taken of what has arrived."""
    del spark
    ledger = tmp_path / "ledger.jsonl"
    ledger.write_text(_ledger())
    done = run("delivery", ledger, "--json", "--fail-on", "warning", "--out", tmp_path / "out")
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert [(row["code"], row["count"]) for row in told["summary"]] == [("undelivered", 1)]
    lines = (tmp_path / "out" / "figures.jsonl").read_text().splitlines()
    figures = [json.loads(line) for line in lines]
    found = {(row["measure"], row["group"]): row["value"] for row in figures}
    assert found["delivery rate", "of all"] == 0.75
    assert found["acknowledgment seconds", "50%"] == 86_400
    assert found["state", "sent"] == 2
