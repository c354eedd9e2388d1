"""What stamps are evidence of, against what minting them took."""

from collections import Counter

import pytest
from pyspark.sql import SparkSession

from sealmail_pow import Difficulty, level, mint
from sealmail_pow.odds import expected_hashes
from sealmail_spark.jobs.pow import pow_figures
from sealmail_spark.schemas import PAYMENTS

MAILS, PRICE = 3000, Difficulty(12)


def test_the_work_told_is_the_work_done(spark: SparkSession) -> None:
    """Most stamps are worth more than was asked for, without more work: that counts for nothing.

    By counting the search of every mail is the same in each run.
    """
    mails = [str(number).encode() for number in range(MAILS)]
    stamps = [mint(mail, PRICE, deterministic=True) for mail in mails]
    paid = Counter(level(mail, stamp) for mail, stamp in zip(mails, stamps, strict=True))
    done = sum(max(int(nonce, 16) for nonce in stamp.nonces) + 1 for stamp in stamps)
    rows = [
        dict.fromkeys(PAYMENTS.names)
        | {"store": "one", "kind": "by price", "bits": bits, "counted": False, "mails": count}
        for bits, count in paid.items()
    ]
    frame = spark.createDataFrame([tuple(row.values()) for row in rows], PAYMENTS)
    told = {row["measure"]: row["value"] for row in pow_figures(frame).collect()}
    assert told["hashes expected"] == pytest.approx(done, rel=0.1)
    assert told["hashes expected"] == pytest.approx(MAILS * expected_hashes(PRICE), rel=0.1)
