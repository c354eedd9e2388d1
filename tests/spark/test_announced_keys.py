"""What an audit reads of a key: until when, and by which of its parts, it can be written to."""

from datetime import timedelta
from random import Random

from tests.spark.conftest import NOW

from sealmail_spark.checks import BlockChecks
from sealmail_spark.facts import AnnouncedKey, StoredRow
from sealmail_spark.generator.people import gpg_key
from sealmail_spark.generator.town import Town
from sealmail_spark.signatures import SignatureChecks
from sealmail_verify import Verifier


def test_a_key_ends_with_the_last_part_that_mail_is_sealed_to() -> None:
    """Its own part, which signs, is good for ever; what has expired is weak for nobody."""
    town = Town(Random(41), NOW, 0)  # noqa: S311 - invented mail is no secret
    pair = gpg_key("Short", "ed25519", "SHA256", "rsa1024", life="2d")
    entry = town.workshop.key(town.person(1, pair), NOW)

    def announced(seen: int) -> AnnouncedKey:
        row = StoredRow(
            store="one",
            seen=seen,
            type=entry.type,
            key=entry.key.raw,
            identity=entry.identity,
            date=int(NOW.timestamp()),
            size=0,
            stamp_bits=entry.stamp_bits,
            digest=entry.digest,
            revoked=False,
            holder=b"",
            paid=False,
            header=entry.header,
            data=None,
            certificate=None,
            held="server",
        )
        checks = BlockChecks(SignatureChecks(Verifier(), 0.0, certificates=True))
        (facts,) = checks.examine([row])
        assert facts.announced is not None
        return facts.announced

    now = int(NOW.timestamp())
    before, after = announced(now), announced(now + 3 * 86_400)
    assert before.key_expires is not None
    assert abs(before.key_expires - NOW - timedelta(days=2)) < timedelta(hours=1)
    assert (before.algorithm, before.bits) == ("RSA", 1024)
    assert (after.algorithm, after.key_expires) == ("EdDSA", before.key_expires)
