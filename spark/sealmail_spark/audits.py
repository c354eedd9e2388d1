"""The jobs by name: what each reads, and its findings and figures."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.storagelevel import StorageLevel

from sealmail_spark.jobs.store import store_figures, store_findings
from sealmail_spark.reading import Tables


@dataclass(frozen=True, slots=True)
class Audit:
    """What a job has to say; nothing is computed before it is asked for."""

    findings: DataFrame
    figures: DataFrame


def kept(frame: DataFrame) -> DataFrame:
    """Have a frame computed once; on disk, since it may be larger than memory."""
    return frame.persist(StorageLevel.DISK_ONLY)


def audit_store(tables: Tables) -> Audit:
    """Examine every block by itself."""
    tallies = kept(tables.tallies())
    return Audit(store_findings(tallies), store_figures(tallies))


JOBS: Final[dict[str, Callable[[Tables], Audit]]] = {
    "store": audit_store,
}
