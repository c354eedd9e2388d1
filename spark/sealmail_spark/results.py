"""What an audit leaves behind: files for machines, a summary for people, and an exit code."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from sealmail_protocol.dates import format_date
from sealmail_spark.codes import SEVERITIES, Severity


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How many findings, of a severity or worse, are borne: ``fault:0`` bears no fault."""

    severity: Severity
    most: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``SEVERITY`` or ``SEVERITY:COUNT``; anything else is a ``ValueError``."""
        name, colon, count = text.partition(":")
        if name not in SEVERITIES or (colon and not count.isdecimal()):
            raise ValueError(f"{text!r} is not a severity ({', '.join(SEVERITIES)}), maybe :COUNT")
        return cls(Severity(name), int(count) if colon else 0)

    def exceeded_by(self, found: "Summary") -> bool:
        """Tell whether there are more findings than are borne."""
        worse = SEVERITIES[: SEVERITIES.index(self.severity) + 1]
        return sum(found.by_severity.get(each, 0) for each in worse) > self.most


@dataclass(frozen=True, slots=True)
class Summary:
    """How many findings there are of each kind."""

    by_code: dict[tuple[str, str, str], int]

    @classmethod
    def of(cls, findings: DataFrame) -> Self:
        """Count findings by job, severity and code."""
        rows = findings.groupBy("job", "severity", "code").count().collect()
        counts = {(row["job"], row["severity"], row["code"]): row["count"] for row in rows}
        return cls(dict(sorted(counts.items(), key=lambda pair: _place(pair[0]))))

    @property
    def by_severity(self) -> dict[str, int]:
        """Return how many findings each severity has."""
        return {
            severity: sum(n for (_, each, _), n in self.by_code.items() if each == severity)
            for severity in SEVERITIES
        }


def _place(kind: tuple[str, str, str]) -> tuple[int, str, str]:
    job, severity, code = kind
    return [*SEVERITIES, severity].index(severity), job, code


def worst_first(findings: DataFrame, most: int) -> list[dict[str, Any]]:
    """Return some findings, the worst first."""
    order = F.coalesce(
        *(F.when(F.col("severity") == name, F.lit(place)) for place, name in enumerate(SEVERITIES))
    )
    rows = findings.orderBy(order, "job", "code", "store", "type", "key", "detail").limit(most)
    return [as_json(row) for row in rows.collect()]


def as_json(row: Row) -> dict[str, Any]:
    """Return a row as JSON can hold it; dates in the form of the protocol."""
    return {
        name: format_date(value.astimezone()) if isinstance(value, datetime) else value
        for name, value in row.asDict().items()
    }


def write_results(directory: Path, findings: DataFrame, figures: DataFrame) -> None:
    """Write findings and figures into a directory, as Parquet and as JSON, a line for each."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, frame in (("findings", findings), ("figures", figures)):
        frame.write.mode("overwrite").parquet(str(directory / f"{name}.parquet"))
        with (directory / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in _lines(frame))


def readable(text: str) -> str:
    """Return text of strangers without what could steer a terminal, or turn text around."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _lines(frame: DataFrame) -> Iterator[str]:
    """Yield rows as JSON, a partition at a time: there may be more than memory holds."""
    for row in frame.toLocalIterator():
        yield json.dumps(as_json(row))
