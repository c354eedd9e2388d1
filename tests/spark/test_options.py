"""What else the program can be told: prices, the present, partners, where Spark runs."""

import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession
from tests.spark.conftest import BRISK, NOW
from tests.spark.test_export import remove
from tests.spark.test_program import run

from sealmail_protocol.dates import format_date
from sealmail_spark.generator.making import Made
from sealmail_spark.generator.town import Town
from sealmail_spark.generator.writing import write_store
from sealmail_spark.session import open_session

SECONDS = 240
RATE = 40_000_000
# What tells, on a terminal, where Spark runs and whether its progress is shown.
TELLING = """
import sys
from pyspark.sql import SparkSession
from sealmail_spark.cli.program import main
try:
    main(sys.argv[2:], standalone_mode=False)
finally:
    spark = SparkSession.getActiveSession()
    told = [spark.conf.get(f"spark.{name}") for name in ("master", "ui.showConsoleProgress")]
    open(sys.argv[1], "w").write(" ".join(told))
    spark.stop()
"""


def figures(out: Path) -> dict[tuple[str, str], float]:
    """Return the figures that a run wrote, by measure and group."""
    lines = (out / "figures.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return {(row["measure"], row["group"]): row["value"] for row in rows}


def summary(*arguments: object) -> dict[str, int]:
    """Return how often each code was found."""
    told = json.loads(run(*arguments, "--json").stdout)
    return {row["code"]: row["count"] for row in told["summary"]}


def test_prices_follow_a_benchmark_a_number_of_mails_and_patience(
    spark: SparkSession, stores: Path, tmp_path: Path
) -> None:
    """The rate is the benchmark's, costs are for so many mails, the price is what is borne."""
    del spark
    bench, out = tmp_path / "bench.json", tmp_path / "out"
    bench.write_text(
        json.dumps({"hashes_per_second": {"native": RATE, "slow": 1}, "fastest": "native"})
    )
    options = ("--pow-bench", bench, "--mails", 5000, "--patience", 16, "--out", out)
    run("pow", stores / "sound", *options)
    found = figures(out)
    assert found["hashes a second", "core"] == RATE
    a_thousand = found["dollars a thousand, cores", "40"]
    assert found["dollars for 5000 mails, cores", "40"] == pytest.approx(5 * a_thousand)
    # 16 s of 40 million hashes: 2**28.9 of about 1.25 * 2**(bits / 2).
    assert found["recommended", "SenderProofOfWork"] == 56
    still = json.dumps({"hashes_per_second": {"native": 0}, "fastest": "native"})
    for text, reason in (("{}", "pow bench --json"), (still, "0.0 hashes a second is no rate")):
        bench.write_text(text)
        refused = run("pow", stores / "sound", *options)
        assert (refused.exit_code, reason in refused.stderr) == (2, True)


def test_the_present_can_be_another(spark: SparkSession, made: dict[str, Made]) -> None:
    """A sound store has grown old by next year, and was dated ahead last year."""
    del spark
    store = made["sound"].directory
    later = format_date(NOW.replace(year=NOW.year + 1, day=1))
    assert "kept-too-long" in summary("references", store, "--as-of", later)
    earlier = format_date(NOW.replace(year=NOW.year - 1, day=1))
    assert set(summary("store", store, "--as-of", earlier)) == {"future-date"}
    assert summary("references", store) == {}
    assert run("store", store, "--as-of", "yesterday").exit_code == 2


def test_generated_partners_are_found_to_differ(spark: SparkSession, tmp_path: Path) -> None:
    """The list says of each fault in which of the two stores it shows."""
    del spark
    made = run("generate", tmp_path / "new", "--blocks", 40, "--faults", 1, "--partners")
    assert made.exit_code == 0
    seeded = json.loads((tmp_path / "new" / "seeded.json").read_text())
    out = tmp_path / "out"
    done = run("replicas", tmp_path / "new", "--fail-on", "warning", "--out", out)
    assert done.exit_code == 1
    rows = [json.loads(line) for line in (out / "findings.jsonl").read_text().splitlines()]
    assert sorted((row["store"], row["code"], row["key"]) for row in rows) == sorted(
        (one["store"], one["code"], one["key"]) for one in seeded if one["job"] == "replicas"
    )
    assert {one["store"] for one in seeded} == {"a", "b"}
    assert run("generate", tmp_path / "x", "--partners", "--values", 5).exit_code == 2


def test_a_key_that_changed_between_two_runs_is_told(
    spark: SparkSession, made: dict[str, Made], tmp_path: Path
) -> None:
    """By the claims that the history kept; without it nobody knows of the former key."""
    del spark
    store = tmp_path / "store"
    shutil.copytree(made["sound"].directory, store)
    town = Town(Random(13), NOW, 0)  # noqa: S311 - invented mail is no secret
    first, second = town.people[:2]
    claim = town.workshop.claim(first, town.moment(), address="moving@example.net")
    keys = [town.workshop.key(person, person.since) for person in (first, second)]
    write_store(store, [claim, *keys], NOW)
    history = ("--history", tmp_path / "history")
    assert summary("keys", store, *history) == {}
    remove(store, claim)
    again = town.workshop.claim(second, town.moment(), address="moving@example.net")
    write_store(store, [again], NOW)
    assert summary("keys", store) == {}
    assert summary("keys", store, *history) == {"changed-key": 1}
    # Now the new key is the known one. Nor does another store, audited in between, make it new.
    other = tmp_path / "other"
    shutil.copytree(made["sound"].directory, other)
    former = town.workshop.claim(first, town.moment(), address="moving@example.net")
    write_store(other, [former, *keys], NOW)
    assert summary("keys", other, *history) == {}
    assert summary("keys", store, *history) == {}
    remove(store, again)
    write_store(store, [former], NOW)
    assert summary("keys", store, *history) == {"changed-key": 1}


def test_a_running_session_tells_times_in_utc(spark: SparkSession) -> None:
    """Whoever has started it: days and dates are those of the blocks."""
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    assert open_session().conf.get("spark.sql.session.timeZone") == "UTC"


def test_nothing_is_generated_where_stores_cannot_be_written(tmp_path: Path) -> None:
    """An audit that travels in a zip says so in one line."""
    telling = "import sys; sys.modules['sealmail_store'] = None; import sealmail_spark.cli as c"
    command = [sys.executable, "-c", f"{telling}; c.main()", "generate", str(tmp_path / "new")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "sealmail_store is missing: to generate stores, install" in done.stderr


def test_spark_runs_where_it_is_told_and_shows_progress_on_a_terminal(
    tmp_path: Path,
) -> None:
    """Both are settings of the session, which is there before it is known that no store is."""
    told = tmp_path / "told"
    audit = ("store", str(tmp_path), "--master", "local[3]")
    environment = {**os.environ, "JDK_JAVA_OPTIONS": BRISK, "SPARK_LOCAL_DIRS": str(tmp_path)}
    command = [sys.executable, "-c", TELLING, str(told), *audit]
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=theirs, timeout=SECONDS
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert (done.returncode, told.read_text()) == (2, "local[3] true")
