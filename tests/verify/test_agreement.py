"""What is found good after small changes is what the gpg program finds good in the same text."""

import subprocess
from random import Random

import pytest
from tests.verify.conftest import Keyring, Sample

from sealmail_verify import BadSignature, Verifier

# What stands at the ends of lines, escapes, headers and armor decides how a text is read.
BITS = (
    *(b"\n", b"\r", b"\r\n", b" ", b"\t", b" \n", b"\t\r\n", b"\n\n", b"-", b"- ", b"\n- ", b"x"),
    *(b"=", b"\0", b"\n- -----BEGIN PGP SIGNATURE-----", b"\nHash: SHA512", b"\nVersion: x\n"),
)
NO_MATCH = "the signature does not match the text and the key, or the key was not valid then"


def _changed(text: bytes, random: Random) -> bytes:
    """Change a text in one or two places, often at the end of a line, now and then everywhere."""
    for _ in range(random.choice((1, 1, 2))):
        signature = max(1, text.find(b"-----BEGIN PGP SIGNATURE"))
        at = random.randrange(random.choice((len(text), signature)))
        if random.random() < 0.4:
            at = text.find(b"\n", at) % len(text)
        match random.randrange(6):
            case 0:
                text = text[:at] + text[at + 1 :]
            case 1:
                text = text.replace(b"\n", b"\r\n")
            case _:
                text = text[:at] + random.choice(BITS) + text[at:]
    return text


@pytest.mark.parametrize("name", ["odd-lines", "subkey", "rsa", "empty"])
def test_gpg_finds_the_same_of_a_changed_text(
    name: str, samples: dict[str, Sample], keyring: Keyring
) -> None:
    """Good by both; or by our measure not even in form, which gpg may overlook."""
    sample, random, verifier = samples[name], Random(17), Verifier()  # noqa: S311 - noise
    command = ["gpg", f"--homedir={keyring.home}", "--batch", "--trust-model=always", "--verify"]
    good = forged = 0
    for _ in range(150):
        text = _changed(sample.text, random)
        try:
            verifier.verify_clear_signed(text, sample.certificate, sample.expected)
        except BadSignature as error:
            if error.reason != NO_MATCH:
                continue
            expected, forged = False, forged + 1
        else:
            expected, good = True, good + 1
        by_gpg = subprocess.run(command, input=text, capture_output=True, check=False)
        assert (by_gpg.returncode == 0) is expected, (text, by_gpg.stderr)
    assert min(good, forged) > 2
