"""``sealmail-audit``: exit codes, files, history and the report."""

import json
import re
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession
from tests.spark.conftest import NOW
from tests.spark.test_schemas import assert_json

from sealmail_protocol.dates import format_date
from sealmail_spark.cli.program import main
from sealmail_spark.generator.entangled import VALUE_FAULTS
from sealmail_spark.generator.faults import FAULTS
from sealmail_spark.generator.making import Made
from sealmail_spark.generator.people import revoked_key
from sealmail_spark.generator.town import Town
from sealmail_spark.generator.writing import write_store
from sealmail_spark.history import History, Question
from sealmail_spark.results import Summary, Tolerance
from sealmail_spark.schemas import FINDINGS
from sealmail_store import StoredEntry


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
    borne = run("store", seeded, "--fail-on", "fault:100", "--json")
    assert borne.exit_code == 0
    assert_printed(json.loads(borne.stdout))
    lines = (tmp_path / "out" / "findings.jsonl").read_text().splitlines()
    written = [json.loads(line) for line in lines]
    assert {row["code"] for row in written} >= {"malformed", "wrong-key", "missing-bytes"}
    assert (tmp_path / "out" / "findings.parquet").is_dir()


def assert_printed(told: dict[str, Any]) -> None:
    """Assert that JSON for scripts has the names and types that they rely on."""
    names = {name: type(value) for name, value in told.items()}
    assert names == {
        "summary": list,
        "findings": list,
        "signatures_left_out": int,
        "keys_not_read": int,
    }
    for row in told["summary"]:
        kinds = {name: type(value) for name, value in row.items()}
        assert kinds == {"job": str, "severity": str, "code": str, "count": int}
    assert_json(told["findings"], FINDINGS)


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
    assert {"job", "code", "type", "key", "held", "store"} == set(seeded[0])
    ways = sum(len(ways) for ways in FAULTS.values()) + len(VALUE_FAULTS)
    assert len(seeded) == ways


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
    page, store = tmp_path / "report.html", tmp_path / HOSTILE
    shutil.copytree(stores / "seeded", store)
    write_store(store, [_hostile_key()], NOW)
    options = ("--history", tmp_path / "history", "--signatures", 0, "--fail-on", "fault:9999")
    # Neither other stores nor other shares of signatures can be compared with what follows.
    assert run("references", stores, *options).exit_code == 0
    assert run("store", store, *options, "--signatures", 1).exit_code == 0
    assert run("store", store, *options).exit_code == 0
    town = Town(Random(12), NOW, 0)  # noqa: S311 - invented mail is no secret
    late = [town.workshop.data(town.moment(), 900) for _ in range(7)]
    write_store(store, late, NOW)
    done = run("report", page, store, *options, "--ledger", ledger)
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
    assert "Rates by the ledger: delivery: 50.0%; acknowledgment: 25.0%" in html
    assert f"{_blocks(store):,} blocks in 1 stores<br>{escape(HOSTILE)}</p>" in html
    assert f"<br>{escape(f'{HOSTILE} <a@b.example>')}</td>" in html
    assert f"message 8, {escape(HOSTILE)}, since " in html
    assert HOSTILE not in html
    assert "Mail a day" in html
    assert_drift(html, store)


HOSTILE = '"><script>'


def _hostile_key() -> StoredEntry:
    """Return a key whose owner would have the auditor's browser execute something."""
    town = Town(Random(14), NOW, 0)  # noqa: S311 - invented mail is no secret
    person = replace(town.person(1, revoked_key("Hostile")), name=HOSTILE, address="a@b.example")
    return town.workshop.key(person, town.moment(timedelta(days=6)), revoked=True)


def assert_drift(html: str, store: Path) -> None:
    """Assert that the two equal runs of ``store`` are drawn, point for point, and no others."""
    drift = html.split("<h2>Drift</h2>", 1)[1].split("</section>", 1)[0]
    drawn = re.findall(r"<figcaption>(.*?) <span", drift)
    assert drawn == [f"Blocks: {what}" for what in DRIFTING]
    figures = dict(zip(drawn, re.findall(r"<figure>.*?</figure>", drift), strict=True))
    assert [len(_points(figures[f"Blocks: {what}"])) for what in DRIFTING] == [6, 10, 10, 10]
    # Nothing that ``store`` looks for came to the store, but seven blocks of 900 bytes did.
    findings = _points(figures["Blocks: findings"])
    assert findings[0] == findings[1]
    assert findings[0][1] > 10
    with closing(sqlite3.connect(store / "index.sqlite")) as index:
        ((total, count),) = index.execute(
            "SELECT sum(size + length(header)), count(*) FROM entries WHERE type = 'data'"
        ).fetchall()
        ((late, added),) = index.execute(
            "SELECT sum(size + length(header)), count(*) FROM"
            " (SELECT * FROM entries WHERE type = 'data' ORDER BY id DESC LIMIT 7)"
        ).fetchall()
    sizes = _points(figures["Blocks: mean size"])
    before, after = (value for name, value in sizes if name == "data")
    assert before == pytest.approx((total - late) / (count - added), rel=0.01)
    assert after == pytest.approx(total / count, rel=0.01)
    assert before != after


def test_runs_without_a_finding_are_points_at_zero(
    spark: SparkSession, made: dict[str, Made], tmp_path: Path
) -> None:
    """Even a history in which nothing was ever found is one."""
    history = tmp_path / "history"
    for _ in range(2):
        run("keys", made["sound"].directory, "--history", history, "--signatures", 0)
    asked = Question(("sound",), 0.0)
    findings, *others = History(history).drifts(spark, ["keys"], asked)
    assert [(name, value) for _, name, value in findings.points] == [("", 0.0), ("", 0.0)]
    assert not any(drift.points for drift in others)
    (unlike, *_) = History(history).drifts(spark, ["keys"], Question(("sound",), 1.0))
    assert unlike.points == ()


DRIFTING = ("findings", "mean level", "mean age", "mean size")
_POWERS = {"k": 1e3, "M": 1e6, "": 1.0}


def _points(figure: str) -> list[tuple[str, float]]:
    """Return the series and value of each point of a plot, in the order in which it is drawn."""
    titles = re.findall(r"<title>([a-z-]+), [^:]+:\d\d: ([\d.e+-]+)([kM]?) ", figure)
    return [(name, float(value) * _POWERS[power]) for name, value, power in titles]


def _blocks(store: Path) -> int:
    with closing(sqlite3.connect(store / "index.sqlite")) as index:
        ((count,),) = index.execute("SELECT count(*) FROM entries").fetchall()
        return int(count)


def _ledger() -> str:
    day = "2026-03-0{}T12:00:00Z"
    rows = [
        (1, "acknowledged", day.format(1), day.format(1), day.format(2)),
        (2, "sent", day.format(1), day.format(2), None),
        (3, "sent", day.format(8), day.format(9), None),
        (4, "waiting", day.format(1), None, None),
        (5, "sent", "2026-03-12T12:00:00Z", "2026-03-13T12:00:00Z", None),
        (6, "failed", day.format(1), None, None),
        (7, "cancelled", day.format(1), None, None),
        (8, HOSTILE, day.format(1), None, None),
    ]
    names = ("message", "state", "composed", "sent", "acknowledged")
    lines = [dict(zip(names, row, strict=True)) | {"recipient": "A" * 40} for row in rows]
    return "".join(json.dumps(line) + "\n" for line in lines)


def test_a_ledger_tells_times_rates_and_what_is_late(spark: SparkSession, tmp_path: Path) -> None:
    """Mail long on its way is a warning; times are taken of what has arrived."""
    del spark
    ledger = tmp_path / "ledger.jsonl"
    ledger.write_text(_ledger())
    present = ("--as-of", "2026-03-13T12:00:00Z")
    options = (*present, "--json", "--fail-on", "warning", "--out", tmp_path / "out")
    done = run("delivery", ledger, *options)
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert [
        (row["severity"], row["code"], row["key"], row["detail"]) for row in told["findings"]
    ] == [
        ("warning", "given-up", "A" * 40, "message 6, failed, since 12 days"),
        ("warning", "undelivered", "A" * 40, "message 4, waiting, since 12 days"),
        ("warning", "undelivered", "A" * 40, f"message 8, {HOSTILE}, since 12 days"),
        ("notice", "unacknowledged", "A" * 40, "message 2, sent, since 11 days"),
    ]
    lines = (tmp_path / "out" / "figures.jsonl").read_text().splitlines()
    figures = [json.loads(line) for line in lines]
    found = {(row["measure"], row["group"]): row["value"] for row in figures}
    assert found["delivery rate", "of all"] == pytest.approx(4 / 8)
    assert found["acknowledgment seconds", "50%"] == 86_400
    assert found["state", "sent"] == 3


def test_the_present_of_a_ledger_is_now_unless_told(spark: SparkSession, tmp_path: Path) -> None:
    """Mail is stuck although nothing has happened since; as of then it was not late yet."""
    del spark
    ledger, hour_ago = tmp_path / "ledger.jsonl", datetime.now(UTC) - timedelta(hours=1)
    row = {"message": 1, "state": "queued", "recipient": "A" * 40}
    for composed, late in (("2026-03-01T12:00:00Z", 1), (format_date(hour_ago), 0)):
        ledger.write_text(json.dumps(row | {"composed": composed}) + "\n")
        assert run("delivery", ledger, "--fail-on", "warning").exit_code == late
    ledger.write_text(json.dumps(row | {"composed": "2026-03-01T12:00:00Z"}) + "\n")
    options = ("--fail-on", "warning", "--as-of", "2026-03-02T12:00:00Z")
    assert run("delivery", ledger, *options).exit_code == 0


def test_a_ledger_of_a_later_version_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Its rows might mean something else; the present version is understood."""
    del spark
    ledger = tmp_path / "ledger.jsonl"
    for version, code in ((1, 0), (2, 2)):
        ledger.write_text(json.dumps({"version": version, "message": 1, "state": "sent"}) + "\n")
        done = run("delivery", ledger)
        assert (done.exit_code, "ledger of version 2" in done.stderr) == (code, code == 2)
