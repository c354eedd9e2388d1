"""What the proof of work is worth: demanded, paid, evidenced, reused, and in money."""

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sealmail_protocol.policy import MAX_FUTURE_REPLICATED
from sealmail_spark.findings import all_of, as_figures, as_findings, figures_of, finding
from sealmail_spark.prices import Market, price_rows
from sealmail_spark.schemas import FIGURES

JOB: Final = "pow"
TYPES: Final = ("key-announcement", "message-announcement")
COLUMNS: Final = (
    *("store", "seen", "type", "key", "date", "holder", "bits", "nonces", "nonce_height"),
    *("stamp", "tokened", "paid", "announced"),
)
# Clocks differ, and a store looks at its own once an hour.
_AHEAD: Final = 2 * 3600


def pow_findings(facts: DataFrame) -> DataFrame:
    """Return stamps that paid twice, that were made ahead, and that are below the price."""
    mail = _mail(facts)
    # What is stamped does not name the mailbox, so the entries may be under several keys.
    reused = mail.groupBy("store", "type", "stamp").agg(
        F.count("*").alias("count"), F.min("date").alias("date"), F.min("key").alias("key")
    )
    twice = reused.where(F.col("count") > 1).select(
        *finding("reused-stamp", F.format_string("%d entries by one stamp", F.col("count")))
    )
    ahead = F.unix_timestamp("date") - F.unix_timestamp("seen")
    latest = F.lit(int(MAX_FUTURE_REPLICATED.total_seconds()))
    early = mail.where((ahead > _AHEAD) & (ahead <= latest)).select(
        *finding("stamped-ahead", F.format_string("%d hours ahead", F.floor(ahead / 3600)))
    )
    priced = mail.join(_prices(facts), ["store", "holder"], "inner")
    below = priced.where(~F.col("tokened") & (F.col("bits") < F.col("price"))).select(
        *finding(
            "underpaid",
            F.format_string("paid %d bits, the price is %d", F.col("bits"), F.col("price")),
        )
    )
    return as_findings(all_of(twice, early, below))


def pow_figures(facts: DataFrame) -> DataFrame:
    """Return levels demanded and paid, and the work that stamps are evidence of.

    ``hashes expected`` is what such stamps take on average; ``hashes counted`` what those took
    that were searched by counting, by their highest nonce.
    """
    mail = _mail(facts)
    bits, counted = F.col("bits"), F.col("nonce_height").isNotNull()
    kind = F.when(F.col("tokened"), F.lit("with token")).otherwise(F.lit("by price"))
    # The mean of a search for two nonces; more nonces are rare and take more.
    expected = F.sqrt(F.pi() / 2) * F.pow(F.lit(2.0), bits / 2)
    paid = figures_of(
        mail,
        JOB,
        [
            ("mails", kind, F.lit(1)),
            ("paid", F.concat_ws(" ", kind, bits), F.lit(1)),
            ("hashes expected", kind, expected),
            ("stamps counted", F.when(counted, kind), F.lit(1)),
            ("hashes counted", F.when(counted, kind), F.col("nonce_height") + 1),
        ],
    )
    demanded = figures_of(_prices(facts), JOB, [("demanded", F.col("price"), F.lit(1))])
    return as_figures(all_of(paid, demanded))


def price_figures(spark: SparkSession, market: Market) -> DataFrame:
    """Return what each price costs, and which one is recommended; of no store."""
    rows = [(JOB, None, measure, group, value) for measure, group, value in price_rows(market)]
    return spark.createDataFrame(rows, FIGURES)


def _mail(facts: DataFrame) -> DataFrame:
    return facts.where((F.col("type") == "message-announcement") & F.col("bits").isNotNull())


def _prices(facts: DataFrame) -> DataFrame:
    keys = facts.where(F.col("announced").isNotNull())
    return keys.select(
        "store", F.col("key").alias("holder"), F.col("announced.price_bits").alias("price")
    )
