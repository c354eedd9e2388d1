"""Why a text or a key block is not believed."""


class BadSignature(Exception):
    """The text or its key block is refused; ``reason`` is a sentence part for people."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Undecided(BadSignature):
    """Nothing was found out: a program is missing, busy, late or dead. Trying again may help."""


class BrokeVerifier(Undecided):
    """The text killed or stalled the process that verified it, and would do so again."""
