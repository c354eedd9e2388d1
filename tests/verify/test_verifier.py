"""Texts that must verify and texts that must not, by both engines and by the one that chooses."""

import base64
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.verify.conftest import (
    SPEC_SIGNER,
    VECTORS,
    YEAR_2024,
    YEAR_2026,
    Keyring,
    Sample,
    spec_certificate,
)

from sealmail_protocol.keys import KeyId
from sealmail_verify import (
    BadSignature,
    GpgVerifier,
    SequoiaVerifier,
    Undecided,
    Verifier,
    read_certificate,
    verify_clear_signed,
)

GOOD = [
    *("ed25519", "rsa", "crlf", "blank-around", "odd-lines", "empty", "subkey", "expired-since")
]
Engine = SequoiaVerifier | GpgVerifier | Verifier


@pytest.fixture(params=[SequoiaVerifier, GpgVerifier, Verifier])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Provide each engine in turn."""
    made: Engine = request.param()
    return made


@pytest.mark.parametrize("name", ["ka_sample.asc", "ac_sample.asc"])
def test_the_samples_of_the_specification_verify(name: str, keyring: Keyring) -> None:
    """Both verify by gpg as they are and through our verifier, for all the key's SHA-1."""
    text = (VECTORS / name).read_bytes()
    keyring.gpg("--import", stdin=spec_certificate())
    keyring.gpg("--verify", str(VECTORS / name))
    for verifier in (Verifier(), GpgVerifier()):
        found = verifier.verify_clear_signed(text, spec_certificate(), SPEC_SIGNER)
        assert (found.signer, found.revoked, found.hash_algorithm) == (
            SPEC_SIGNER,
            False,
            "SHA512",
        )
        assert found.signed_at.year == 2014


@pytest.mark.parametrize("name", GOOD)
def test_a_good_text_verifies(name: str, samples: dict[str, Sample], engine: Engine) -> None:
    """Each engine names the primary key and finds the text good."""
    sample = samples[name]
    found = engine.verify_clear_signed(sample.text, sample.certificate, sample.expected)
    assert (found.signer, found.revoked) == (sample.expected, False)


@pytest.mark.parametrize("name", GOOD)
def test_engines_agree_on_what_they_find(name: str, samples: dict[str, Sample]) -> None:
    """Date, hash and signer are the same by pysequoia and by gpg."""
    sample = samples[name]
    by_sequoia, by_gpg = (
        engine.verify_clear_signed(sample.text, sample.certificate, sample.expected)
        for engine in (SequoiaVerifier(), GpgVerifier())
    )
    assert by_sequoia == by_gpg


def _change_signature(text: bytes) -> bytes:
    """Change the last octets of the signature and leave out the checksum."""
    lines = text.splitlines()
    lines[-3] = lines[-3].rstrip(b"=")[:-4] + b"AAAA"
    lines[-3] += b"=" * (-len(lines[-3]) % 4)
    return b"\n".join([*lines[:-2], lines[-1]])


CHANGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "text": (lambda text: text.replace(b"test", b"tent"), "does not match"),
    "signature": (_change_signature, "match|no valid"),
    "checksum": (lambda text: re.sub(rb"\n=.{4}\n", b"\n=AAAA\n", text), "checksum"),
    "before": (lambda text: b"junk\n" + text, "does not begin"),
    "behind": (lambda text: text + b"junk\n", "something follows|no end"),
    "twice": (lambda text: text + text, "something follows|has no end"),
    "header": (lambda text: text.replace(b"\n\n", b"\nType: x\n\n", 1), "other than Hash"),
    "other-hash": (lambda text: text.replace(b"SHA", b"SHA1, SHA3", 1), "no Hash: line names"),
    "no-hash": (lambda text: text.replace(text.splitlines()[1] + b"\n", b"", 1), "no Hash: line"),
    "lone-cr": (lambda text: text.replace(b"Type: ", b"Type:\r"), "carriage return"),
    "escape": (lambda text: text.replace(b"- - dash", b"-- dash"), "no PGP signature"),
    "line-added": (lambda text: text.replace(b"\n\n", b"\n\n\n", 1), "does not match"),
    "no-signature": (lambda text: text[: text.index(b"-----BEGIN PGP SIGNATURE")], "no signature"),
    "long-line": (lambda text: text.replace(b"test", b"t" * 17_000), "a line of"),
    "long-text": (lambda text: text + b"\n" * 300_000, "at most"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_text_is_refused(
    change: str, samples: dict[str, Sample], engine: Engine
) -> None:
    """Whatever is changed within or around the signed message, the reason tells it."""
    apply, reason = CHANGES[change]
    sample = samples["ed25519"]
    changed = apply(sample.text)
    assert changed != sample.text
    with pytest.raises(BadSignature, match=reason):
        engine.verify_clear_signed(changed, sample.certificate, sample.expected)


def test_another_keys_signature_is_refused(
    samples: dict[str, Sample], engine: Engine, bob: KeyId
) -> None:
    """A good signature by somebody else counts for nothing, nor does somebody else's key."""
    ann_sample, bob_sample = samples["ed25519"], samples["rsa"]
    with pytest.raises(BadSignature):
        engine.verify_clear_signed(bob_sample.text, ann_sample.certificate, ann_sample.expected)
    with pytest.raises(BadSignature, match="the key block holds the key"):
        engine.verify_clear_signed(ann_sample.text, ann_sample.certificate, bob)


def test_two_signatures_are_refused(
    keyring: Keyring, ann: KeyId, bob: KeyId, engine: Engine
) -> None:
    """Even if one of the two is good."""
    users = (f"--local-user={ann}", f"--local-user={bob}")
    text = keyring.gpg(*users, "--clear-sign", stdin=b"both\n")
    with pytest.raises(BadSignature, match="exactly one signature"):
        engine.verify_clear_signed(text, keyring.export(ann), ann)


def test_key_blocks_must_be_one_public_key(
    keyring: Keyring, ann: KeyId, bob: KeyId, engine: Engine
) -> None:
    """Two keys, a secret key, secret packets under a public name and noise are refused."""
    text, public = keyring.sign(ann), keyring.export(ann)
    secret = keyring.gpg("--armor", "--export-secret-keys", ann.hex)
    blocks = {
        "more than one key": keyring.export(ann, bob),
        "something follows": public + keyring.export(bob),
        "a secret key where": secret,
        "holds a secret key": secret.replace(b"PRIVATE", b"PUBLIC"),
        "no PGP public key block": b"",
        "has no end": public[:-20],
        "cut short": b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmQEN\n"
        b"-----END PGP PUBLIC KEY BLOCK-----",
    }
    for reason, block in blocks.items():
        with pytest.raises(BadSignature, match=reason):
            engine.verify_clear_signed(text, block, ann)


@pytest.mark.parametrize(("digest", "name"), [("SHA1", "SHA-1"), ("RIPEMD160", "RIPEMD-160")])
def test_weak_hashes_are_refused(
    digest: str, name: str, keyring: Keyring, bob: KeyId, engine: Engine
) -> None:
    """A signature by a hash that can be forged is none, although gpg takes it."""
    text = keyring.sign(bob, b"weak\n", f"--digest-algo={digest}")
    with pytest.raises(BadSignature, match=f"signed by {name}"):
        engine.verify_clear_signed(text, keyring.export(bob), bob)


def test_a_revoked_key_proves_its_revocation(revoked: Sample) -> None:
    """The text stands and the result tells the revocation; pysequoia alone refuses it."""
    for verifier in (Verifier(), GpgVerifier()):
        found = verifier.verify_clear_signed(revoked.text, revoked.certificate, revoked.expected)
        assert (found.signer, found.revoked) == (revoked.expected, True)
    with pytest.raises(BadSignature, match="revoked"):
        SequoiaVerifier().verify_clear_signed(revoked.text, revoked.certificate, revoked.expected)


def test_a_changed_text_of_a_revoked_key_is_refused(revoked: Sample) -> None:
    """A revocation excuses nothing else."""
    with pytest.raises(BadSignature, match="does not match"):
        verify_clear_signed(
            revoked.text.replace(b"test", b"tent"), revoked.certificate, revoked.expected
        )


def test_a_revoked_subkey_signs_nothing(revoked_subkey: Sample, engine: Engine) -> None:
    """The primary key is not revoked, so there is no revocation to prove."""
    with pytest.raises(BadSignature):
        engine.verify_clear_signed(
            revoked_subkey.text, revoked_subkey.certificate, revoked_subkey.expected
        )


def test_a_text_signed_after_expiry_is_refused(expired_before: Sample, engine: Engine) -> None:
    """What counts is whether the key was valid when it signed."""
    with pytest.raises(BadSignature):
        engine.verify_clear_signed(
            expired_before.text, expired_before.certificate, expired_before.expected
        )


def test_a_text_older_than_the_self_signature_is_refused(
    keyring: Keyring, counting_gpg: tuple[str, Path]
) -> None:
    """Who moves a key's expiry date signs anew; a forger's choice of date starts no gpg."""
    hal = keyring.make_key("hal", "ed25519", "sign,cert", "5y", YEAR_2024)
    text = keyring.sign(hal, b"early\n", YEAR_2024)
    keyring.gpg(YEAR_2026, "--quick-set-expire", hal.hex, "6y")
    program, starts = counting_gpg
    starts.write_text("")
    with pytest.raises(BadSignature, match="not valid then"):
        Verifier(GpgVerifier(program)).verify_clear_signed(text, keyring.export(hal), hal)
    assert starts.read_text() == ""


def test_a_text_from_the_future_is_refused(keyring: Keyring, ann: KeyId, engine: Engine) -> None:
    """Its date is wrong, although gpg would take it."""
    text = keyring.sign(ann, b"x\n", "--faked-system-time=20990101T000000!")
    with pytest.raises(BadSignature, match="future"):
        engine.verify_clear_signed(text, keyring.export(ann), ann)


def test_a_forgery_over_a_good_key_starts_no_gpg(
    samples: dict[str, Sample], counting_gpg: tuple[str, Path]
) -> None:
    """Only a key that itself needs gpg starts it."""
    program, starts = counting_gpg
    verifier = Verifier(GpgVerifier(program))
    sample = samples["ed25519"]
    starts.write_text("")
    verifier.verify_clear_signed(sample.text, sample.certificate, sample.expected)
    for apply, _ in CHANGES.values():
        with pytest.raises(BadSignature):
            verifier.verify_clear_signed(apply(sample.text), sample.certificate, sample.expected)
    assert starts.read_text() == ""
    claim = (VECTORS / "ac_sample.asc").read_bytes()
    verifier.verify_clear_signed(claim, spec_certificate(), SPEC_SIGNER)
    assert starts.read_text() != ""


def test_a_missing_or_slow_gpg_leaves_the_text_undecided(tmp_path: Path) -> None:
    """Neither says anything about the text, and no home is left behind."""
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    homes = tmp_path / "homes"
    homes.mkdir()
    claim = (VECTORS / "ac_sample.asc").read_bytes()
    for program, reason in [(slow, "in time"), (tmp_path / "none", "does not start")]:
        gpg = GpgVerifier(str(program), deadline=0.2, scratch=homes)
        with pytest.raises(Undecided, match=reason):
            Verifier(gpg).verify_clear_signed(claim, spec_certificate(), SPEC_SIGNER)
    assert not list(homes.iterdir())


def test_keys_tell_their_facts(
    samples: dict[str, Sample], revoked: Sample, expired_before: Sample
) -> None:
    """Names, uses and dates are read by pysequoia, and by gpg for an old key."""
    with_subkeys = read_certificate(samples["subkey"].certificate)
    assert with_subkeys.key_id == samples["subkey"].expected
    assert with_subkeys.user_ids == ("cat <cat@example.org>",)
    assert (with_subkeys.can_encrypt, with_subkeys.expires) == (True, None)
    assert not read_certificate(samples["ed25519"].certificate).can_encrypt
    assert read_certificate(revoked.certificate).revoked
    expired = read_certificate(expired_before.certificate)
    assert expired.expires is not None
    assert expired.expires.year in (2024, 2025)
    old = read_certificate(spec_certificate())
    assert old.user_ids == ("William Wreck <wreck@pobox.com>",)
    assert (old.old_self_signature, old.can_encrypt, old.revoked) == (True, True, False)


def test_engines_read_the_same_facts(samples: dict[str, Sample]) -> None:
    """Both engines agree on every key, but for the mark of gpg."""
    for sample in samples.values():
        by_gpg = GpgVerifier().read_certificate(sample.certificate)
        by_sequoia = SequoiaVerifier().read_certificate(sample.certificate)
        assert by_gpg.user_ids == by_sequoia.user_ids
        assert (by_gpg.can_encrypt, by_gpg.expires) == (by_sequoia.can_encrypt, by_sequoia.expires)


def test_a_compressed_packet_reaches_no_engine(ann: KeyId, engine: Engine) -> None:
    """It could unpack to gigabytes, so it is refused by its tag."""
    block = (
        b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n"
        + base64.b64encode(b"\xc8\x03\x01\x03\x00")
        + b"\n-----END PGP PUBLIC KEY BLOCK-----\n"
    )
    with pytest.raises(BadSignature, match="not a public key"):
        engine.verify_clear_signed(b"", block, ann)


def test_gpg_agrees_on_whole_texts(samples: dict[str, Sample], keyring: Keyring) -> None:
    """What we take apart verifies also as the text that it is."""
    for name, sample in samples.items():
        done = subprocess.run(
            ["gpg", f"--homedir={keyring.home}", "--batch", "--verify"],
            input=sample.text,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, name
