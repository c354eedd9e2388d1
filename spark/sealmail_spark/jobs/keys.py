"""The keys that mail is sealed to: expired, revoked, weak, rivalled, changed, and where."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sealmail_spark.findings import all_of, as_figures, as_findings, figures_of, finding, hex_key

JOB: Final = "keys"
TYPES: Final = ("key-announcement", "address-claim")
COLUMNS: Final = (
    *("store", "seen", "type", "key", "identity", "date", "revoked"),
    *("address", "announced"),
)
# What every current program still makes and trusts.
LEAST_RSA_BITS: Final = 2048


def key_findings(facts: DataFrame, earlier: DataFrame | None = None) -> DataFrame:
    """Return what is wrong with keys and claims.

    ``earlier`` are the claims of an earlier run (store, address, identity, date), by which a key
    that has changed since is known.
    """
    keys, claims = _keys(facts), _claims(facts)
    return as_findings(all_of(*_key_states(keys), _rivals(claims), _changed(claims, earlier)))


def key_figures(facts: DataFrame) -> DataFrame:
    """Return how many keys there are by algorithm, network and price, and how many claims.

    Of ``keys not read`` nobody knows when they expire, nor what they stand on.
    """
    keys = _keys(facts)
    networks = keys.select("store", F.explode("announced.networks").alias("network"))
    sized = F.when(F.col("announced.bits") > 0, F.col("announced.bits"))
    return as_figures(
        all_of(
            figures_of(
                keys,
                JOB,
                [
                    ("algorithm", F.concat_ws(" ", "announced.algorithm", sized), F.lit(1)),
                    ("price", F.col("announced.price_bits"), F.lit(1)),
                    ("keys not read", F.when(~F.col("announced.read"), F.lit("keys")), F.lit(1)),
                ],
            ),
            figures_of(networks, JOB, [("network", F.col("network"), F.lit(1))]),
            figures_of(_claims(facts), JOB, [("claims", F.lit("claims"), F.lit(1))]),
        )
    )


def claims_of(facts: DataFrame) -> DataFrame:
    """Return the claims to remember for a later run."""
    return _claims(facts).select("store", "address", "identity", "date")


def _keys(facts: DataFrame) -> DataFrame:
    return facts.where(F.col("announced").isNotNull())


def _claims(facts: DataFrame) -> DataFrame:
    return facts.where(F.col("address").isNotNull())


def _key_states(keys: DataFrame) -> list[DataFrame]:
    key = F.col("announced")
    stale = (key["expires"] < F.col("seen")) & ~F.col("revoked")
    few = key["algorithm"].isin("RSA", "Elgamal") & (key["bits"] < LEAST_RSA_BITS)
    small = few | (key["algorithm"] == "DSA")
    old = F.coalesce(key["old_self_signature"], F.lit(False))
    reason = F.coalesce(
        F.when(small, F.concat_ws(" ", key["algorithm"], key["bits"])),
        F.when(old, F.lit("its self-signature is of SHA-1, or of an older kind")),
    )
    states = [
        ("stale-announcement", stale, _until(key["expires"], "to be announced anew by ")),
        ("expired-key", key["key_expires"] < F.col("seen"), _until(key["key_expires"], "until ")),
        ("revoked-key", F.col("revoked"), key["user_id"]),
        ("weak-key", reason.isNotNull(), reason),
    ]
    return [keys.where(state).select(*finding(code, detail)) for code, state, detail in states]


def _rivals(claims: DataFrame) -> DataFrame:
    """Return one finding for each address in a store that several keys claim."""
    rivals = _several(claims, ["store", "address"])
    return rivals.select(*finding("rival-claims", _listed()))


def _changed(claims: DataFrame, earlier: DataFrame | None) -> DataFrame:
    """Return one finding for each address whose key is not the same everywhere or as before.

    Where one store has all of the claims they are rivals, not a change.
    """
    columns = ["store", "type", "key", "address", "identity", "date"]
    known = claims.select(columns)
    if earlier is not None:
        before = earlier.select(
            "store",
            F.lit("address-claim").alias("type"),
            F.unhex(F.sha1(F.encode("address", "UTF-8"))).alias("key"),
            *("address", "identity", "date"),
        )
        known = known.unionByName(before)
    rivals = _several(claims, ["store", "address"]).select("address")
    changed = _several(known, ["address"]).join(rivals, ["address"], "left_anti")
    return changed.select(*finding("changed-key", _listed()))


def _several(claims: DataFrame, by: list[str]) -> DataFrame:
    """Return who and when of addresses that more than one key claims, the newest claim first."""
    claim = F.struct("date", hex_key("identity").alias("owner"), "store", "type", "key")
    found = claims.groupBy(*by).agg(
        F.sort_array(F.collect_set(claim), asc=False).alias("claims"),
        F.count_distinct("identity").alias("owners"),
    )
    newest = F.col("claims")[0]
    fields = [
        newest[name].alias(name) for name in ("store", "type", "key", "date") if name not in by
    ]
    return found.where(F.col("owners") > 1).select(*by, *fields, "claims")


def _listed() -> Column:
    """Name the claiming keys, the newest claim first."""
    return F.concat_ws(
        ": ",
        F.col("address"),
        F.array_join(F.array_distinct(F.transform("claims", lambda each: each["owner"])), ", "),
    )


def _until(moment: Column, words: str) -> Column:
    return F.concat(F.lit(words), F.date_format(moment, "yyyy-MM-dd'T'HH:mm:ss'Z'"))
