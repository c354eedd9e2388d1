"""What the proof of work is worth: demanded, paid, evidenced, reused, and in money.

Payments come from their reader, which examined mails and keys and summed them up; what is left is
what no part of a store can tell alone: a stamp that paid twice, and the price of a reader.
"""

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sealmail_spark.findings import (
    all_of,
    as_figures,
    as_findings,
    figures_of,
    finding,
    findings_by,
)
from sealmail_spark.prices import Market, price_rows
from sealmail_spark.schemas import FIGURES

JOB: Final = "pow"
TYPES: Final = ("key-announcement", "message-announcement")
_MAIL: Final = "message-announcement"
# A search that ends at b bits takes sqrt(pi/2) * 2^(b/2) hashes on average, and its stamp is worth
# b + k bits with probability 2^-(k+1). So the mean of 2^(level/2) is 2^(b/2) times the sum of
# 2^-(k+1) * 2^(k/2) over all k, which is 0.5 / (1 - 2^-0.5) = 1.71. Divided by this, levels that
# were attained add up to the work of their searches, whatever was asked for.
LUCK: Final = 0.5 / (1 - 2**-0.5)


def pow_findings(payments: DataFrame) -> DataFrame:
    """Return stamps that paid twice, that were made ahead, and that are below the price."""
    payments = payments.withColumn("type", F.lit(_MAIL))
    mail = payments.where(F.col("stamp").isNotNull())
    # What is stamped does not name the mailbox, so the entries may be under several keys.
    reused = mail.groupBy("store", "type", "stamp").agg(
        F.count("*").alias("count"), F.min("date").alias("date"), F.min("key").alias("key")
    )
    twice = reused.where(F.col("count") > 1).select(
        *finding("reused-stamp", F.format_string("%d entries by one stamp", F.col("count")))
    )
    early = payments.where(F.col("code").isNotNull()).select(
        *findings_by(F.col("code"), F.col("detail"), ["stamped-ahead"])
    )
    below = mail.drop("price").join(_prices(payments), ["store", "holder"], "inner")
    below = below.where(F.col("bits") < F.col("price")).select(
        *finding(
            "underpaid",
            F.format_string("paid %d bits, the price is %d", F.col("bits"), F.col("price")),
        )
    )
    return as_findings(all_of(twice, early, below))


def pow_figures(payments: DataFrame) -> DataFrame:
    """Return levels demanded and paid, and the work that stamps are evidence of.

    ``hashes expected`` is what such stamps have taken on average; ``hashes counted`` what those
    took that were searched by counting, by their highest nonce.
    """
    counts = payments.where(F.col("mails").isNotNull())
    kind, bits, mails = F.col("kind"), F.col("bits"), F.col("mails")
    # Of a search for two nonces; more nonces are rare and take more.
    expected = F.sqrt(F.pi() / 2) * F.pow(F.lit(2.0), bits / 2) / F.lit(LUCK)
    paid = figures_of(
        counts,
        JOB,
        [
            ("mails", kind, mails),
            ("paid", F.concat_ws(" ", kind, bits), mails),
            ("hashes expected", kind, mails * expected),
            ("stamps counted", F.when(F.col("counted"), kind), mails),
            ("hashes counted", F.when(F.col("counted"), kind), F.col("hashes")),
        ],
    )
    demanded = figures_of(_prices(payments), JOB, [("demanded", F.col("price"), F.lit(1))])
    return as_figures(all_of(paid, demanded))


def price_figures(spark: SparkSession, market: Market) -> DataFrame:
    """Return what each price costs, and which one is recommended; of no store."""
    rows = [(JOB, None, measure, group, value) for measure, group, value in price_rows(market)]
    return spark.createDataFrame(rows, FIGURES)


def _prices(payments: DataFrame) -> DataFrame:
    """Return the price of each holder once; of several announcements the lowest."""
    priced = payments.where(F.col("price").isNotNull())
    return priced.groupBy("store", "holder").agg(F.min("price").alias("price"))
