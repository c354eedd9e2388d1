"""Stores that are damaged, or made to harm their auditor: told as findings, never a crash."""

import json
import re
import shutil
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession
from tests.spark.conftest import NOW, Found
from tests.spark.hostile import change
from tests.spark.test_program import run

from sealmail_spark.generator.making import Made
from sealmail_spark.generator.town import Town
from sealmail_spark.generator.writing import write_store
from sealmail_spark.reading import Tables, Wish
from sealmail_spark.schemas import BLOCKS
from sealmail_spark.store_index import open_index


@pytest.fixture
def town() -> Town:
    """Return people whose blocks are tampered with."""
    return Town(Random(31), NOW, 0)  # noqa: S311 - invented mail is no secret


def test_no_row_crashes_an_audit_or_hides_from_it(
    spark: SparkSession, found: Found, hostile: Path, accused: set[tuple[str, str, str]]
) -> None:
    """Every job came to its end, and of every hostile row there is a finding."""
    told = {(code, kind, key) for _, code, kind, key in found.of(hostile.name)}
    assert told >= accused
    assert found.figures_of(hostile.name)["store", "blocks", "data"] > 5
    blocks = spark.read.format("sealmail").option("columns", ",".join(BLOCKS.names))
    assert len(blocks.option("types", "data").load(str(hostile)).collect()) > 5


@pytest.mark.parametrize("told", ["soon", "-5", "99999999999999999999", "10" * 400, "", "１"])
def test_a_clock_that_tells_no_moment_is_told_and_not_believed(
    spark: SparkSession, town: Town, tmp_path: Path, told: str
) -> None:
    """The newest Date of its blocks is the present of such a store."""
    last = town.workshop.acknowledgment(NOW)
    write_store(tmp_path / "store", [town.workshop.acknowledgment(town.moment()), last], NOW)
    change(
        tmp_path / "store",
        f"UPDATE settings SET value = '{told}' WHERE name = 'latest-time-seen'",  # noqa: S608
        "UPDATE entries SET date = 1000000000000 WHERE id = 1",
    )
    tables = Tables(spark, [tmp_path / "store"], Wish())
    assert list(tables.moments().values()) == [int(NOW.timestamp())]
    (trouble,) = tables.troubles
    assert (trouble.code, trouble.detail[:24]) == ("malformed", "its latest-time-seen is ")
    assert len(trouble.detail) < 80


def cut(directory: Path) -> None:
    """Cut the index in its middle."""
    with (directory / "index.sqlite").open("rb+") as file:
        file.truncate(5000)


def overwrite(directory: Path) -> None:
    """Have something else in the place of the index."""
    (directory / "index.sqlite").write_bytes(b"something else entirely " * 300)


def loosen(directory: Path) -> None:
    """Let columns hold values of any kind."""
    names = "id, type, key, identity, date, size, stamp_bits, digest, poster, revoked, holder"
    change(
        directory,
        "ALTER TABLE entries RENAME TO former",
        f"CREATE TABLE entries ({names}, paid, source, header, data)",
        "INSERT INTO entries SELECT * FROM former",
        "UPDATE entries SET date = 'soon'",
    )


def mistype(directory: Path) -> None:
    """Let a type be no text."""
    change(directory, "UPDATE entries SET type = CAST(x'ff00' AS TEXT) WHERE id = 1")


DAMAGES = {"cut": cut, "overwritten": overwrite, "loose": loosen, "mistyped": mistype}


def test_damaged_stores_are_findings_and_the_others_are_audited(
    spark: SparkSession, made: dict[str, Made], tmp_path: Path
) -> None:
    """They fail the audit by default; what is wrong elsewhere is told as well."""
    del spark
    for name in ("good", *DAMAGES):
        shutil.copytree(made["sound"].directory, tmp_path / name)
    for name, damage in DAMAGES.items():
        damage(tmp_path / name)
    change(tmp_path / "good", "UPDATE entries SET date = 1 WHERE id = 5")
    done = run("store", tmp_path, "--signatures", 0, "--json")
    assert done.exit_code == 1
    told = [(row["store"], row["code"]) for row in json.loads(done.stdout)["findings"]]
    assert sorted(told) == sorted(
        [*((name, "unreadable-store") for name in DAMAGES), ("good", "wrong-date")]
    )


def test_a_damaged_store_alone_is_a_finding(
    spark: SparkSession, made: dict[str, Made], tmp_path: Path
) -> None:
    """Nothing is left to be read, and that is told."""
    del spark
    shutil.copytree(made["sound"].directory, tmp_path / "bad")
    overwrite(tmp_path / "bad")
    done = run("store", tmp_path / "bad", "--signatures", 0)
    assert done.exit_code == 1
    assert "unreadable-store: bad: file is not a database" in done.stdout


def test_damage_that_shows_while_it_is_read_ends_in_one_line(
    spark: SparkSession, made: dict[str, Made], tmp_path: Path
) -> None:
    """It says which store, by an exit code that is not that of findings."""
    del spark
    shutil.copytree(made["sound"].directory, tmp_path / "bad")
    index = tmp_path / "bad" / "index.sqlite"
    with open_index(tmp_path / "bad") as found:
        ((root,),) = found.ask("SELECT rootpage FROM sqlite_schema WHERE name = 'entries'")
        ((size,),) = found.ask("PRAGMA page_size")
    with index.open("rb+") as file:
        file.seek((root - 1) * size)
        file.write(b"\xff" * size)
    done = run("store", tmp_path / "bad", "--signatures", 0)
    assert done.exit_code == 2
    assert re.fullmatch(r"sealmail-audit: .*bad.*malformed\n", done.stderr), done.stderr
