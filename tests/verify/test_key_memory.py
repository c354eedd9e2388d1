"""Keys that are remembered change what verifying costs, and nothing of what it finds."""

import pytest
from tests.verify.conftest import Sample, spec_certificate

from sealmail_verify import BadSignature, Verifier
from sealmail_verify.evidence import read_key_block
from sealmail_verify.loaded_keys import KeyMemory, LoadedKey

ROOM = 1 << 20


def test_a_remembered_key_decides_as_a_new_one(
    samples: dict[str, Sample], revoked: Sample, expired_before: Sample
) -> None:
    """Good, revoked and expired keys, and texts by another key: the second answer is the first."""
    memory = KeyMemory(ROOM)
    known, new = Verifier(memory=memory), Verifier()
    for sample in (samples["ed25519"], samples["subkey"], revoked):
        asked = sample.text, sample.certificate, sample.expected
        first = known.verify_clear_signed(*asked)
        held = memory.get(sample.certificate)
        assert held is not None
        assert first == known.verify_clear_signed(*asked) == new.verify_clear_signed(*asked)
        assert memory.get(sample.certificate) is held
    for sample in (expired_before, revoked, samples["rsa"]):
        with pytest.raises(BadSignature):
            known.verify_clear_signed(
                samples["ed25519"].text, sample.certificate, samples["ed25519"].expected
            )


def test_memory_stays_within_its_bytes(samples: dict[str, Sample]) -> None:
    """What was not used for longest is forgotten; without room nothing is kept."""
    armored = samples["ed25519"].certificate
    key = LoadedKey.of(read_key_block(armored))
    texts = [armored + b"\n" * count for count in range(20)]
    memory = KeyMemory(ROOM // 16)
    for text in texts:
        memory.put(text, key)
        assert memory.get(texts[0]) is key
    kept = [text for text in texts if memory.get(text)]
    assert kept == [texts[0], *texts[len(texts) - len(kept) + 1 :]]
    assert 2 < len(kept) < 15
    nothing = KeyMemory()
    nothing.put(armored, key)
    assert nothing.get(armored) is None


def test_a_lifetime_is_that_of_the_facts(
    samples: dict[str, Sample], expired_before: Sample
) -> None:
    """Who asks for the dates alone is told the same, also of a key that only gpg accepts."""
    certificates = [
        samples["ed25519"].certificate,
        expired_before.certificate,
        spec_certificate(),
    ]
    for certificate in certificates:
        told = Verifier().read_lifetime(certificate)
        facts = Verifier().read_certificate(certificate)
        assert (told.expires, told.old_self_signature) == (
            facts.expires,
            facts.old_self_signature,
        )
