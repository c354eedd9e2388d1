"""What holds on to what: data nobody names, mail without its data, time that is over.

Data of a malformed announcement counts as named by nobody, since nobody could fetch it by that.
"""

from datetime import timedelta
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sealmail_protocol.policy import BLOCK_POLICY
from sealmail_spark.findings import all_of, as_figures, as_findings, figures_of, finding, hex_key

JOB: Final = "references"
# The facts that this job asks for.
COLUMNS: Final = (
    *("store", "seen", "type", "key", "identity", "date", "size", "header_size", "holder"),
    *("revoked", "named"),
)
# A server sweeps once an hour, and looks at its clock as often.
GRACE: Final = timedelta(hours=2)
# Mail is posted after its data, so the data that came last may still be without.
ON_ITS_WAY: Final = timedelta(minutes=10)
_MAIL, _KEY = "message-announcement", "key-announcement"


def reference_findings(facts: DataFrame) -> DataFrame:
    """Return what is loose, what is missing and what has outlived its time."""
    data, names = _data(facts), _names(facts)
    named = names.select("store", F.col("named_key").alias("key")).distinct()
    loose = data.join(named, ["store", "key"], "left_anti")
    settled = _age() >= F.lit(int(ON_ITS_WAY.total_seconds()))
    orphans = loose.where(settled & ~_outlived("data")).select(
        *finding("orphan-data", F.format_string("%d bytes", F.col("size")))
    )
    return as_findings(all_of(orphans, _missing(data, names), _old(facts, loose)))


def reference_figures(facts: DataFrame) -> DataFrame:
    """Return what is saved by storing once, and bytes by user, shared among who is written to.

    Of a user are the blocks that bear its key id, and the data that its announcements name.
    """
    data = _data(facts).select("store", "key", "size")
    names = _names(facts).select("store", F.col("named_key").alias("key"), "holder")
    held = names.groupBy("store", "key").agg(
        F.count("*").alias("names"), F.count_distinct("holder").alias("users")
    )
    used = data.join(held, ["store", "key"], "left")
    spared = F.col("size") * (F.col("names") - 1)
    totals = figures_of(
        used,
        JOB,
        [
            ("single-copy savings", F.when(F.col("names") > 1, F.lit("bytes")), spared),
            ("orphans", F.when(F.col("names").isNull(), F.lit("bytes")), F.col("size")),
            ("orphans", F.when(F.col("names").isNull(), F.lit("blocks")), F.lit(1)),
        ],
    )
    of_user = names.distinct().join(used, ["store", "key"], "inner")
    user = hex_key("holder")
    shares = figures_of(
        of_user,
        JOB,
        [
            ("bytes of user", user, F.col("size")),
            ("apportioned bytes of user", user, F.col("size") / F.col("users")),
            ("data blocks of user", user, F.lit(1)),
        ],
    )
    own = facts.select("store", "type", "header_size", _user().alias("holder"))
    is_mail = F.when(F.col("type") == _MAIL, user)
    texts = figures_of(
        own,
        JOB,
        [
            ("mails of user", is_mail, F.lit(1)),
            *(
                (
                    f"{name} bytes of user",
                    F.when(F.col("type") == kind, user),
                    F.col("header_size"),
                )
                for kind, name in _NAMES.items()
            ),
        ],
    )
    every = of_user.select("store", "holder", "size", "users").unionByName(
        own.where(F.col("holder").isNotNull()).select(
            "store", "holder", F.col("header_size").alias("size"), F.lit(1).alias("users")
        )
    )
    total = figures_of(
        every,
        JOB,
        [
            ("total bytes of user", user, F.col("size")),
            ("total apportioned bytes of user", user, F.col("size") / F.col("users")),
        ],
    )
    return as_figures(all_of(totals, shares, texts, total))


# Whose a block is that is a user's own, by type; what it is called in figures.
_OWNERS: Final = {_MAIL: "holder", "key-announcement": "key", "address-claim": "identity"}
_NAMES: Final = {_MAIL: "announcement", "key-announcement": "key", "address-claim": "claim"}


def _user() -> Column:
    return F.coalesce(*(F.when(F.col("type") == kind, F.col(of)) for kind, of in _OWNERS.items()))


def _data(facts: DataFrame) -> DataFrame:
    return facts.where(F.col("type") == "data").drop(
        "named", "holder", "identity", "revoked", "header_size"
    )


def _names(facts: DataFrame) -> DataFrame:
    """Return a row for each data block that an announcement names."""
    announced = facts.where(F.col("type") == _MAIL)
    return announced.select(
        *("store", "type", "key", "identity", "date", "holder"),
        F.explode("named").alias("named_key"),
    )


def _missing(data: DataFrame, names: DataFrame) -> DataFrame:
    """Return one finding for each announcement that names what is not there."""
    there = data.select("store", F.col("key").alias("named_key"))
    lacking = names.join(there, ["store", "named_key"], "left_anti")
    entries = lacking.groupBy("store", "type", "key", "identity", "date").agg(
        F.count("*").alias("count"), F.min(hex_key("named_key")).alias("one")
    )
    detail = F.format_string(
        "%d data blocks are missing, such as %s", F.col("count"), F.col("one")
    )
    return entries.select(*finding("missing-data", detail))


def _old(facts: DataFrame, loose: DataFrame) -> DataFrame:
    """Return what should have been removed; named data and revoked keys may stay."""
    spared = F.col("revoked") & (F.col("type") == _KEY)
    others = facts.where((F.col("type") != "data") & ~spared).select(loose.columns)
    age = F.floor(_age() / 86_400)
    detail = F.format_string("%d days old", age)
    both = others.unionByName(loose)
    outlived = F.coalesce(*(F.when(F.col("type") == kind, _outlived(kind)) for kind in _AGES))
    return both.where(outlived).select(*finding("kept-too-long", detail))


_AGES: Final = {str(kind): policy.max_age + GRACE for kind, policy in BLOCK_POLICY.items()}


def _outlived(kind: str) -> Column:
    return _age() >= F.lit(int(_AGES[kind].total_seconds()))


def _age() -> Column:
    return F.unix_timestamp("seen") - F.unix_timestamp("date")
