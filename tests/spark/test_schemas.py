"""What is written and read has the columns that docs/auditing.md explains, and no others."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from tests.spark.conftest import MARKET, SINGLE, Found

from sealmail_spark import jobs
from sealmail_spark.audits import JOBS, Audit, Background, audit_delivery
from sealmail_spark.exporting import export
from sealmail_spark.generator.making import Made
from sealmail_spark.history import History, Question
from sealmail_spark.jobs.delivery import read_ledgers
from sealmail_spark.reading import Tables, Wish
from sealmail_spark.results import write_results
from sealmail_spark.schemas import (
    BLOCKS,
    CLAIMS,
    COUNTS,
    FACTS,
    FIGURES,
    FINDINGS,
    PAYMENTS,
    RUNS,
    TALLIES,
)

ROOT = Path(__file__).parents[2]
TEXT = StringType()


def columns(schema: StructType, *more: StructField) -> list[tuple[str, str]]:
    """Return names and types in order; that there is always a value is lost in a file."""
    return [(field.name, field.dataType.simpleString()) for field in (*schema, *more)]


def assert_columns(frame: DataFrame, schema: StructType, *more: str) -> None:
    """Assert that a frame has the columns of a schema, and those that name its directories.

    Spark does not know of all that is computed that it is there, so the rows have to show it.
    """
    assert columns(frame.schema) == columns(schema, *(StructField(name, TEXT) for name in more))
    required = [field.name for field in schema if not field.nullable]
    (missing,) = frame.select(
        *(F.count_if(F.col(name).isNull()).alias(name) for name in required)
    ).collect()
    assert missing.asDict() == dict.fromkeys(required, 0)


# What a column is in JSON, a date being one of the protocol.
IN_JSON: dict[DataType, tuple[type, str]] = {
    StringType(): (str, ".*"),
    TimestampType(): (str, r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"),
    DoubleType(): (float, ".*"),
}


def assert_json(rows: list[dict[str, Any]], schema: StructType) -> None:
    """Assert that there are rows, and that each has the columns of a schema as JSON has them."""
    assert rows
    for row in rows:
        assert list(row) == schema.names
        for field in schema:
            kind, form = IN_JSON[field.dataType]
            value = row[field.name]
            assert isinstance(value, kind) or (field.nullable and value is None), field
            assert value is None or re.fullmatch(form, str(value), re.DOTALL), field


@pytest.mark.parametrize("job", [*JOBS, "delivery"])
def test_findings_and_figures_have_their_schemas(
    spark: SparkSession, stores: Path, job: str
) -> None:
    """Whoever reads results can rely on names, types and order of their columns."""
    tables = Tables(spark, [stores / "sound"], Wish())
    audit: Audit = (
        audit_delivery(read_ledgers(spark, ()), tables)
        if job == "delivery"
        else JOBS[job](tables, Background(MARKET))
    )
    for frame, schema in ((audit.findings, FINDINGS), (audit.figures, FIGURES)):
        if job in SINGLE:
            # Their rows are looked at below.
            assert columns(frame.schema) == columns(schema)
        else:
            assert_columns(frame, schema)
    audit.release()


def test_what_must_be_there_is_in_every_row(found: Found) -> None:
    """Of findings and figures no column is empty but those that may be."""
    for rows, schema in ((found.findings, FINDINGS), (found.figures, FIGURES)):
        optional = {field.name for field in schema if field.nullable}
        empty = {name for row in rows for name, value in row.asDict().items() if value is None}
        assert empty <= optional
        assert {name for row in rows for name in row.asDict()} == set(schema.names)


@pytest.mark.parametrize(
    ("view", "schema"),
    [("blocks", BLOCKS), ("facts", FACTS), ("tallies", TALLIES), ("payments", PAYMENTS)],
)
def test_views_have_their_schemas(
    spark: SparkSession, stores: Path, view: str, schema: StructType
) -> None:
    """A view is offered with its schema, and what its rows hold is of it."""
    reader = spark.read.format("sealmail").option("view", view)
    if view == "blocks":
        reader = reader.option("columns", ",".join(schema.names))
    frame = reader.load(str(stores / "sound"))
    # Here Spark is told what is always there, in structs and arrays too.
    assert frame.schema == schema
    rows = frame.limit(50).collect()
    assert len(rows) == 50
    for row in rows:
        empty = {name for name, value in row.asDict().items() if value is None}
        assert empty <= {field.name for field in schema if field.nullable}


def test_files_have_their_schemas(
    spark: SparkSession, made: dict[str, Made], tmp_path: Path
) -> None:
    """So do results, the history and an export, as Parquet that any program reads."""
    tables = Tables(spark, [made["seeded"].directory], Wish())
    audit = JOBS["keys"](tables, Background())
    write_results(tmp_path / "out", audit.findings, audit.figures)
    history, now = History(tmp_path / "history"), datetime.now(UTC)
    question = Question(tables.names(), 0.0)
    history.add(audit.findings, audit.figures, audit.claims, ("keys",), question, now)
    export(spark, tables, tmp_path / "export")
    audit.release()
    written: dict[str, tuple[StructType, tuple[str, ...]]] = {
        "out/findings": (FINDINGS, ()),
        "out/figures": (FIGURES, ()),
        "history/findings": (COUNTS, ("run",)),
        "history/figures": (FIGURES, ("run",)),
        "history/claims": (CLAIMS, ("run",)),
        "history/runs": (RUNS, ("run",)),
    }
    for name, (schema, more) in written.items():
        assert_columns(spark.read.parquet(str(tmp_path / f"{name}.parquet")), schema, *more)
    for name, schema in (("findings", FINDINGS), ("figures", FIGURES)):
        lines = (tmp_path / "out" / f"{name}.jsonl").read_text().splitlines()
        assert_json([json.loads(line) for line in lines], schema)
    mark = json.loads((tmp_path / "export" / "sealmail-export.json").read_text())
    (reached,) = mark.pop("stores").values()
    assert mark == {"version": 2}
    assert {name: type(value) for name, value in reached.items()} == {
        "row": int,
        "digest": str,
        "seen": int,
    }
    assert len(bytes.fromhex(reached["digest"])) == 32
    blocks = spark.read.parquet(str(tmp_path / "export" / "blocks.parquet"))
    # Directories tell the type and the day, so both come last.
    kept = StructType([field for field in BLOCKS if field.name != "type"])
    assert columns(blocks.schema)[:-1] == columns(kept, BLOCKS["type"])
    assert blocks.columns[-1] == "day"
    (run,) = spark.read.parquet(str(tmp_path / "history" / "runs.parquet")).collect()
    assert (run["job"], run["stores"], run["signatures"]) == ("keys", list(tables.names()), 0.0)


def test_no_job_calls_python_for_a_row() -> None:
    """Jobs are made of what Spark has built in: nothing of theirs travels to be called there."""
    of_python = re.compile(r"\budf\b|\bpandas(?!\.types)|mapIn\w+|applyIn|\.rdd\b|foreach")
    sources = list(Path(jobs.__file__).parent.glob("*.py"))
    assert {source.stem for source in sources} >= {*JOBS, "delivery"}
    sources += Path(jobs.__file__).parents[1].glob("*.py")
    # Blocks of an export are examined by what examines those of a store, where that is read.
    allowed = {"reading.py": {"mapInArrow"}}
    found = {
        each.name: set(of_python.findall(each.read_text(encoding="utf-8"))) for each in sources
    }
    assert {name: calls for name, calls in found.items() if calls} == allowed


@pytest.mark.parametrize(
    ("title", "schema"),
    [
        ("blocks", BLOCKS),
        ("facts", FACTS),
        ("tallies", TALLIES),
        ("payments", PAYMENTS),
        ("findings", FINDINGS),
        ("figures", FIGURES),
    ],
)
def test_every_column_is_explained(title: str, schema: StructType) -> None:
    """The page about audits has a table of each schema, in its order, with the types."""
    page = (ROOT / "docs" / "auditing.md").read_text(encoding="utf-8")
    section = page.split(f"\n### `{title}`", 1)[1].split("\n#", 1)[0]
    told = re.findall(r"^\| (`[^|]+`) \| ([a-z ]+) \|", section, re.MULTILINE)
    found = [(name, kind) for names, kind in told for name in re.findall(r"`(\w+)`", names)]
    assert found == [(field.name, _plain(field.dataType)) for field in schema]


def _plain(kind: DataType) -> str:
    if isinstance(kind, ArrayType):
        return f"array of {_plain(kind.elementType)}"
    return kind.typeName()
