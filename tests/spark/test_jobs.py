"""The jobs, against what was seeded and against a plain auditor in one process."""

import re
from collections import Counter
from datetime import timedelta
from itertools import permutations
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession
from tests.spark.conftest import MARKET, NOW, PARTNERS, SEED, SEEDED_BY, SINGLE, STORES, Found
from tests.spark.plain_auditor import audit as audit_plainly

from sealmail_protocol.block_codec import parse_text_block
from sealmail_protocol.blocks import KeyAnnouncement
from sealmail_protocol.fields import split_lines
from sealmail_spark.audits import JOBS, Background
from sealmail_spark.checks import BlockChecks
from sealmail_spark.codes import CODES
from sealmail_spark.generator.making import Made, make_store
from sealmail_spark.generator.town import Town
from sealmail_spark.generator.writing import copy_store, write_store
from sealmail_spark.jobs import keys
from sealmail_spark.reading import Tables, Wish
from sealmail_spark.signatures import SignatureChecks
from sealmail_spark.source import stored_rows
from sealmail_spark.store_files import find_stores, key_ranges
from sealmail_verify import GpgVerifier, Verifier
from sealmail_verify.evidence import read_key_block


@pytest.mark.parametrize("store", STORES)
def test_every_seeded_fault_is_found_and_nothing_else(
    found: Found, made: dict[str, Made], store: str
) -> None:
    """A fault is found where it was seeded, by its code, and sound blocks are not accused."""
    seeded = Counter((one.job, one.code, one.type, one.key) for one in made[store].seeded)
    assert found.of(store) == seeded, SEEDED_BY


def test_faults_of_every_kind_are_seeded(made: dict[str, Made], partners: Made) -> None:
    """Of each code there is a fault that must be found, but for those that no store can have."""
    elsewhere = {
        # Of the machine that verifies, not of the block.
        "undecided-signature",
        # Of a whole store: test_hostile has some.
        "unreadable-store",
        # Of a user's own ledger.
        *("undelivered", "given-up", "unacknowledged"),
    }
    seeded = {one.code for one in (*made["seeded"].seeded, *partners.seeded)}
    assert seeded == set(CODES) - elsewhere


def test_what_is_kept_too_long_is_told_of_every_type(made: dict[str, Made], found: Found) -> None:
    """Each type has an age of its own; three are weak keys, one by what mail is sealed to."""
    rows = [row for row in found.findings if row["store"] == "seeded"]
    old = {(row["type"], row["detail"]) for row in rows if row["code"] == "kept-too-long"}
    aged = ("address-claim", "message-announcement", "acknowledgment", "data")
    assert old == {(kind, "12 days old") for kind in aged} | {("key-announcement", "33 days old")}
    weak = sorted(row["detail"] for row in rows if row["code"] == "weak-key")
    old_kind = "its self-signature is of SHA-1, or of an older kind"
    assert weak == ["RSA 1024", "RSA 1024", old_kind]
    del made


def test_a_small_key_is_told_by_its_bits_alone(spark: SparkSession, stores: Path) -> None:
    """Where no key is read, what its packets say is known still."""
    tables = Tables(spark, [stores / "seeded"], Wish(signatures=0))
    audit = JOBS["keys"](tables, Background())
    weak = [row["detail"] for row in audit.findings.collect() if row["code"] == "weak-key"]
    assert weak == ["RSA 1024", "RSA 1024"]
    audit.release()


def test_a_signature_that_nothing_could_decide_is_told(made: dict[str, Made]) -> None:
    """Without gpg a revoked key is neither good nor bad: that is a finding of its own."""
    checks = SignatureChecks(Verifier(GpgVerifier("no-such-gpg")), 1.0)
    (part,) = key_ranges(find_stores(made["seeded"].directory), ["key-announcement"], 10**6)
    (rows,) = stored_rows(part)
    told = {
        row.key.hex().upper(): [problem.code for problem in facts.problems]
        for row, facts in zip(rows, BlockChecks(checks).examine(rows), strict=True)
    }
    needing = {"revoked-key", "wrong-revocation", "weak-key"}
    # What is weak only where mail is sealed to it signs by a sound key.
    sealed = {
        row.key.hex().upper()
        for row in rows
        if b"<weak" in row.header and primary_of(row.header) == EDDSA
    }
    seeded = [one for one in made["seeded"].seeded if one.code in needing]
    expected = {one.key for one in seeded} - sealed
    assert len(sealed) == 1
    assert {key for key, codes in told.items() if codes == ["undecided-signature"]} == expected


EDDSA = 22


def primary_of(header: bytes) -> int:
    """Return the algorithm of the primary key that a key-announcement carries."""
    block = parse_text_block(split_lines(header))
    assert isinstance(block, KeyAnnouncement)
    return read_key_block(block.signed.armored_key).algorithm


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_share_of_the_signatures_is_verified(
    spark: SparkSession, made: dict[str, Made], share: float
) -> None:
    """The sample goes by digests, so whoever looks again takes the same; the rest is told."""
    directory = made["sound"].directory
    digests = [
        int.from_bytes(row.digest[:4], "big")
        for part in key_ranges(find_stores(directory), list(keys.TYPES), 10**6)
        for rows in stored_rows(part)
        for row in rows
    ]
    wish = Wish(signatures=share, certificates=True)
    facts = Tables(spark, [directory], wish).facts(("signature",), keys.TYPES)
    found = Counter(row["signature"] for row in facts.collect())
    good = sum(digest < share * 2**32 for digest in digests)
    assert found == Counter({"good": good}) + Counter({"left out": len(digests) - good})


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_seeded_fault_is_found_among_200_000_blocks(
    spark: SparkSession, tmp_path: Path
) -> None:
    """In a large store, too, what was seeded is found, and no sound block is accused.

    Nor is its partner, which has all that it has but for a few.
    """
    made = make_store(tmp_path / "a", 200_000, faults=20, seed=SEED, now=NOW, values=2_000)
    town = Town(Random(SEED), NOW, 0)  # noqa: S311 - invented mail is no secret
    copy_store(made.directory, tmp_path / "b")
    late = [town.workshop.acknowledgment(town.moment()) for _ in range(20)]
    write_store(made.directory, late, NOW + timedelta(hours=1))
    both = JOBS["replicas"](Tables(spark, [tmp_path], Wish()), Background())
    lacking = Counter((row["store"], row["code"], row["key"]) for row in both.findings.collect())
    assert lacking == Counter(("b", "missing-at-partner", one.key.hex) for one in late)
    both.release()
    tables = Tables(spark, [made.directory], Wish(signatures=1.0))
    rows = []
    for name in SINGLE:
        audit = JOBS[name](tables, Background(MARKET))
        rows += audit.findings.collect()
        audit.release()
    found = Counter((row["job"], row["code"], row["type"], row["key"]) for row in rows)
    seeded = Counter((one.job, one.code, one.type, one.key) for one in made.seeded)
    assert found == seeded, SEEDED_BY


@pytest.mark.parametrize("store", STORES)
def test_a_plain_auditor_finds_the_same(found: Found, made: dict[str, Made], store: str) -> None:
    """Findings and figures are those of a single process that shares no code with the jobs."""
    plain = audit_plainly(made[store].directory)
    assert found.dated(store) == Counter(plain.findings), SEEDED_BY
    figures = found.figures_of(store)
    expected = {figure: value for figure, value in plain.figures.items() if value}
    assert set(figures) == set(expected), SEEDED_BY
    assert figures == pytest.approx(expected), SEEDED_BY


def test_every_finding_has_its_code_job_and_severity(found: Found) -> None:
    """A finding says what the table of codes says of its kind, and that what the page says."""
    page = (Path(__file__).parents[2] / "docs" / "auditing.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| (`[^|]+`) \| (fault|warning|notice) \|", page, re.MULTILINE)
    told = {code: each for codes, each in lines for code in re.findall(r"`([\w-]+)`", codes)}
    assert told == {code: row.severity for code, row in CODES.items()}
    for row in found.findings:
        assert (row["job"], row["severity"]) == (
            CODES[row["code"]].job,
            CODES[row["code"]].severity,
        )


def test_partners_are_compared_both_ways(spark: SparkSession, partners: Made) -> None:
    """What each lacks, of every type, and has in another version, is found, and where."""
    tables = Tables(spark, [partners.directory], Wish())
    audits = {name: JOBS[name](tables, Background()) for name in ("replicas", "keys")}
    rows = [row for audit in audits.values() for row in audit.findings.collect()]
    assert Counter(
        (row["job"], row["code"], row["type"], row["key"], row["store"]) for row in rows
    ) == Counter((one.job, one.code, one.type, one.key, one.store) for one in partners.seeded)
    figures = audits["replicas"].figures.where("measure = 'missing'").collect()
    ages = {
        "acknowledgment": "under an hour",
        "address-claim": "under a day",
        "key-announcement": "3 days",
        "message-announcement": "8 days",
        "data": "8 days",
    }
    assert {row["group"]: (row["store"], row["value"]) for row in figures} == {
        f"{holder} -> {other}, {kind}, {age}": (other, 2)
        for holder, other in permutations(PARTNERS, 2)
        for kind, age in ages.items()
    }
    for audit in audits.values():
        audit.release()


def test_one_store_has_nobody_to_differ_from(spark: SparkSession, partners: Made) -> None:
    """A store that is audited alone lacks nothing."""
    alone = JOBS["replicas"](Tables(spark, [partners.directory / "b"], Wish()), Background())
    assert alone.findings.count() == 0
    alone.release()


def test_an_address_that_changed_hands_is_told(spark: SparkSession, stores: Path) -> None:
    """A claim of another key than an earlier run saw is a finding, the same key is none."""
    tables = Tables(spark, [stores / "sound"], Wish(signatures=0))
    first = JOBS["keys"](tables, Background())
    assert first.claims is not None
    seen = first.claims.collect()
    assert JOBS["keys"](tables, Background(earlier_claims=first.claims)).findings.count() == 0
    other = [(row["store"], row["address"], bytes(20), row["date"]) for row in seen[:1]]
    earlier = spark.createDataFrame(other, first.claims.schema)
    changed = JOBS["keys"](tables, Background(earlier_claims=earlier)).findings.collect()
    assert [row["code"] for row in changed] == ["changed-key"]
    assert seen[0]["address"] in changed[0]["detail"]


def test_what_a_price_costs_follows_from_the_rate(found: Found) -> None:
    """Four bits more cost four times as much; the recommended price is what patience allows."""
    cost = {
        row["group"]: row["value"]
        for row in found.figures
        if row["measure"] == "core-seconds a thousand"
    }
    assert cost["52"] / cost["48"] == pytest.approx(4)
    assert cost["48"] == pytest.approx(1000 * 1.2533 * 2**24 / MARKET.core_rate, rel=1e-3)
    assert MARKET.recommended.bits == 48
