"""What stops a mail user, each with its exit code and a way out.

Exit codes are a promise to scripts (docs/user-guide.md): a class keeps its number, and only
classes that ask for the same way out share one.
"""

from pathlib import Path
from typing import ClassVar

from sealmail_protocol.keys import BlockKey, KeyId


class ClientError(Exception):
    """The wish cannot be fulfilled; the text tells the user why and what to do."""

    exit_code: ClassVar[int] = 1


class HomeUnusable(ClientError):
    """The directory cannot hold keys: move it, or make its path shorter."""

    exit_code = 10


class GpgFailed(ClientError):
    """GnuPG is missing or refused its work; ``details`` is what it said.

    It ``gave_up`` if it came to an end of its own: that may be the fault of what it was given.
    """

    exit_code = 11

    def __init__(self, doing: str, details: str = "", *, gave_up: bool = False) -> None:
        said = f": {details}" if details else ""
        super().__init__(f"gpg failed at {doing}{said} (see that gpg 2.2 or newer works)")
        self.doing = doing
        self.details = details
        self.gave_up = gave_up


class WrongPassphrase(ClientError):
    """The passphrase opens none of the keys: type it again."""

    exit_code = 12

    def __init__(self, doing: str) -> None:
        super().__init__(f"{doing}: the passphrase is wrong or missing; give the right one")


class NoSuchKey(ClientError):
    """A key is not in the keyring or may not be used: find a newer one by its address."""

    exit_code = 13

    def __init__(self, key_id: KeyId, reason: str = "is not in the keyring") -> None:
        super().__init__(f"the key {key_id} {reason}; look the address up again")
        self.key_id = key_id
        self.reason = reason


class BadKey(ClientError):
    """What should be one key is none that can be used: ask its owner for a good one."""

    exit_code = 14

    def __init__(self, reason: str) -> None:
        super().__init__(f"not a usable key: {reason}")
        self.reason = reason


class NotForUs(ClientError):
    """A mail was sealed to a key that we do not have: ask the sender to use the newest one."""

    exit_code = 15

    def __init__(self) -> None:
        super().__init__("the mail is sealed to none of our keys; ask for it to be sent again")


class NotOpened(ClientError):
    """gpg-agent opened none of our keys: fetch again, and answer when it asks."""

    exit_code = 12

    def __init__(self) -> None:
        super().__init__(
            "gpg-agent opened none of our keys for it: it is sealed to another, or a prompt was "
            "not answered; a later `sealmail fetch` asks again"
        )


class BadMessage(ClientError):
    """A received mail is damaged or forged; ``reason`` names the broken rule."""

    exit_code = 16

    def __init__(self, reason: str) -> None:
        super().__init__(f"the mail cannot be trusted: {reason}")
        self.reason = reason


class BadPiece(BadMessage):
    """One piece of a mail is missing or damaged: the piece under ``key`` must be fetched again."""

    def __init__(self, key: BlockKey, reason: str) -> None:
        super().__init__(f"its piece {key} {reason}")
        self.key = key


class CannotSeal(ClientError):
    """A mail cannot be packed as it was written: change what the text names."""

    exit_code = 17


class SourceChanged(CannotSeal):
    """A file was written to while it was being sealed: wait until it is finished."""

    def __init__(self, path: Path | None = None) -> None:
        what = f"the file {path}" if path else "an attached file"
        super().__init__(f"{what} changes while it is being sealed; send it when it is finished")
        self.path = path


class LargerThanTaken(ClientError):
    """A mail that nobody asked for holds more than is taken unasked: fetch it by its number."""

    exit_code = 16

    def __init__(self, limit: int) -> None:
        super().__init__(f"opened it has more than {limit // 1024**2} MiB")
        self.limit = limit


class NoSuchAttachment(ClientError):
    """The mail has no attachment of this name: `sealmail read` shows what it has."""

    exit_code = 18

    def __init__(self, name: str) -> None:
        super().__init__(f"the mail has no attachment {name!r}; reading it shows their names")
        self.name = name


class CannotWrite(ClientError):
    """A file that is there already is not overwritten: name another one."""

    exit_code = 28
