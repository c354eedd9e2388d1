"""A process of the pool: reads requests from standard input, writes one answer line each.

A request is two lengths of four octets (text, certificate), the twenty octets of the expected
key id, the text and the certificate. It ends when its input ends, so it never outlives its pool.
"""

import json
import struct
import sys
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from sealmail_protocol.keys import KEY_BYTES, KeyId
from sealmail_verify.errors import BadSignature, Undecided
from sealmail_verify.gpg import GpgVerifier
from sealmail_verify.results import Verification
from sealmail_verify.verifier import Verifier

_LENGTHS = struct.Struct(">II")


def encode_request(text: bytes, certificate: bytes, expected: KeyId) -> bytes:
    """Write a request as the worker reads it."""
    return _LENGTHS.pack(len(text), len(certificate)) + expected.raw + text + certificate


def decode_answer(line: bytes) -> Verification:
    """Return what the worker found, or raise what it raised."""
    answer: dict[str, Any] = json.loads(line)
    if "reason" in answer:
        raise (Undecided if answer["undecided"] else BadSignature)(answer["reason"])
    return Verification(
        KeyId.from_hex(answer["signer"]),
        answer["revoked"],
        answer["hash_algorithm"],
        datetime.fromisoformat(answer["signed_at"]),
    )


def serve(requests: BinaryIO, answers: BinaryIO, verifier: Verifier) -> None:
    """Answer requests until their end."""
    while len(lengths := requests.read(_LENGTHS.size)) == _LENGTHS.size:
        text_length, certificate_length = _LENGTHS.unpack(lengths)
        expected = KeyId(requests.read(KEY_BYTES))
        text, certificate = requests.read(text_length), requests.read(certificate_length)
        answers.write(json.dumps(_answer(verifier, text, certificate, expected)).encode() + b"\n")
        answers.flush()


def _answer(
    verifier: Verifier, text: bytes, certificate: bytes, expected: KeyId
) -> dict[str, object]:
    try:
        found = verifier.verify_clear_signed(text, certificate, expected)
    except BadSignature as error:
        return {"reason": error.reason, "undecided": isinstance(error, Undecided)}
    return {
        "signer": found.signer.hex,
        "revoked": found.revoked,
        "hash_algorithm": found.hash_algorithm,
        "signed_at": found.signed_at.isoformat(),
    }


def main() -> None:
    """Serve the pool; the arguments are the gpg program and the directory for its homes."""
    gpg, scratch = sys.argv[1:]
    verifier = Verifier(GpgVerifier(gpg, scratch=Path(scratch)))
    serve(sys.stdin.buffer, sys.stdout.buffer, verifier)
