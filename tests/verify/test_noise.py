"""Noise in place of texts and keys raises only ``BadSignature``."""

import base64
from contextlib import suppress

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.verify.conftest import Sample

from sealmail_verify import BadSignature, GpgVerifier, Verifier
from sealmail_verify.packets import parse_key_block, parse_text_signature

QUIET = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
# Nothing here may start a program: a missing one would show as Undecided.
NO_GPG = Verifier(GpgVerifier("/nonexistent/gpg"))


@QUIET
@given(noise=st.binary(max_size=400))
def test_noise_is_refused(noise: bytes, samples: dict[str, Sample]) -> None:
    """Noise is neither a text nor a key nor a signature."""
    sample = samples["ed25519"]
    for text, certificate in ((noise, sample.certificate), (sample.text, noise)):
        with suppress(BadSignature):
            NO_GPG.verify_clear_signed(text, certificate, sample.expected)
            raise AssertionError("noise verified")
    for parse in (parse_key_block, parse_text_signature):
        with suppress(BadSignature):
            parse(noise)


@QUIET
@given(data=st.data(), octet=st.integers(1, 255))
def test_changed_packets_are_refused_or_mean_the_same(
    data: st.DataObject, octet: int, samples: dict[str, Sample]
) -> None:
    """A signature or key changed in one octet never makes another text verify."""
    sample = samples["subkey"]
    forged = sample.text.replace(b"test", b"tent")
    head, foot = (
        b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n",
        b"\n-----END PGP PUBLIC KEY BLOCK-----",
    )
    lines = sample.certificate.splitlines()
    packets = bytearray(base64.b64decode(b"".join(lines[2:-2])))
    packets[data.draw(st.integers(0, len(packets) - 1))] ^= octet
    certificate = head + base64.b64encode(packets) + foot
    for text in (sample.text, forged):
        with suppress(BadSignature):
            found = NO_GPG.verify_clear_signed(text, certificate, sample.expected)
            assert text == sample.text
            assert found.signer == sample.expected
