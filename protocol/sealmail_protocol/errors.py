"""What a peer can do wrong: break the conversation, or send a block that cannot stand."""

from enum import StrEnum


class Refusal(StrEnum):
    """Why a block is refused: the codes of a ``REFUSED`` verdict (docs/protocol.md §6.2)."""

    PRICE = "price"
    SIZE = "size"
    DATE = "date"
    STAMP = "stamp"
    KEY = "key"
    SIGNATURE = "signature"
    PERMISSION = "permission"
    FULL = "full"
    QUOTA = "quota"
    RECIPIENT = "recipient"
    FORM = "form"
    INTERNAL = "internal"


class ProtocolError(Exception):
    """The peer broke the wire protocol; the connection cannot go on."""


class InvalidBlock(Exception):
    """A block that breaks a rule; ``code`` is for verdicts, ``reason`` for people."""

    def __init__(self, code: Refusal, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.code}: {self.reason}"
