"""Fingerprints as QR codes on a terminal."""

import io

from sealmail_protocol.keys import KeyId


def code_text(key_id: KeyId) -> str:
    """Return what the code says: the form that other OpenPGP programs read and write."""
    return f"OPENPGP4FPR:{key_id.hex}"


def terminal_code(key_id: KeyId) -> str:
    """Return a QR code of block characters, to be shown light on dark with its quiet zone."""
    # Imported here: most commands draw nothing, and it is a twentieth of the program's start.
    import segno

    drawn = io.StringIO()
    segno.make_qr(code_text(key_id), error="m").terminal(drawn, compact=True)
    return drawn.getvalue().rstrip("\n")
