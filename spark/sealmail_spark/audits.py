"""The jobs by name: what each reads, and its findings and figures."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import DataFrame
from pyspark.storagelevel import StorageLevel

from sealmail_spark.codes import CODES
from sealmail_spark.jobs import delivery, keys, pow, references, replicas
from sealmail_spark.jobs.store import store_figures, store_findings
from sealmail_spark.prices import Market
from sealmail_spark.reading import Tables
from sealmail_spark.schemas import FINDINGS


@dataclass(frozen=True, slots=True)
class Background:
    """What jobs are told beside the stores: prices, and claims of an earlier run."""

    market: Market | None = None
    earlier_claims: DataFrame | None = None


@dataclass(frozen=True, slots=True)
class Audit:
    """What a job has to say; nothing is computed before it is asked for.

    ``claims`` are to be remembered for the next run. ``held`` is what was kept for both, to be let
    go of afterwards.
    """

    findings: DataFrame
    figures: DataFrame
    claims: DataFrame | None = None
    held: tuple[DataFrame, ...] = field(default=())

    def release(self) -> None:
        """Let go of what was kept."""
        for frame in self.held:
            frame.unpersist()


def kept(frame: DataFrame) -> DataFrame:
    """Have a frame computed once; on disk, since it may be larger than memory."""
    return frame.persist(StorageLevel.DISK_ONLY)


def trouble_findings(tables: Tables) -> DataFrame:
    """Return what is wrong with stores as a whole, whatever job looks at them."""
    rows = [
        (row.job, str(row.severity), each.code, each.store, None, None, None, each.detail)
        for each in tables.troubles
        for row in (CODES[each.code],)
    ]
    return tables.spark.createDataFrame(rows, FINDINGS)


def audit_store(tables: Tables, background: Background) -> Audit:
    """Examine every block by itself."""
    del background
    tallies = kept(tables.tallies())
    return Audit(store_findings(tallies), store_figures(tallies), held=(tallies,))


def audit_references(tables: Tables, background: Background) -> Audit:
    """Find what is loose, missing or kept too long, and who uses how much."""
    del background
    facts = kept(tables.facts(references.COLUMNS))
    return Audit(
        references.reference_findings(facts), references.reference_figures(facts), held=(facts,)
    )


def audit_replicas(tables: Tables, background: Background) -> Audit:
    """Compare stores that should be equal."""
    del background
    blocks = kept(tables.blocks(replicas.COLUMNS))
    moments = tables.moments()
    return Audit(
        replicas.replica_findings(blocks, moments),
        replicas.replica_figures(blocks, moments),
        held=(blocks,),
    )


def audit_keys(tables: Tables, background: Background) -> Audit:
    """Look at keys and claims."""
    wish = replace(tables.wish, signatures=0.0, certificates=tables.wish.signatures > 0)
    facts = kept(tables.facts(keys.COLUMNS, keys.TYPES, wish))
    return Audit(
        keys.key_findings(facts, background.earlier_claims),
        keys.key_figures(facts),
        claims=keys.claims_of(facts),
        held=(facts,),
    )


def audit_pow(tables: Tables, background: Background) -> Audit:
    """Weigh what mail has paid, and tell what prices cost."""
    payments = kept(tables.payments(pow.TYPES))
    prices = pow.price_figures(tables.spark, background.market or Market.here())
    figures = pow.pow_figures(payments).unionByName(prices)
    return Audit(pow.pow_findings(payments), figures, held=(payments,))


def audit_delivery(ledger: DataFrame, tables: Tables | None, seen: int | None = None) -> Audit:
    """Tell how the mail of a ledger fared, and how much there was in stores each day.

    ``seen`` is the present of the ledger, in seconds since 1970; by default it is now.
    """
    present = int(datetime.now(UTC).timestamp()) if seen is None else seen
    figures = delivery.delivery_figures(ledger)
    if tables is not None:
        blocks = tables.blocks(delivery.COLUMNS, delivery.TYPES)
        figures = figures.unionByName(delivery.daily_figures(blocks))
    return Audit(delivery.delivery_findings(ledger, present), figures)


JOBS: Final[dict[str, Callable[[Tables, Background], Audit]]] = {
    "store": audit_store,
    "references": audit_references,
    "replicas": audit_replicas,
    "keys": audit_keys,
    "pow": audit_pow,
}
