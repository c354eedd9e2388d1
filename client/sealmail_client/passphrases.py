"""Where passphrases come from: a file that the environment names, or the user."""

import getpass
import os
import sys
import warnings
from pathlib import Path

from sealmail_client.errors import WrongPassphrase

# Where scripts leave the passphrase; a variable with the passphrase itself would show in `ps e`.
PASSPHRASE_FILE = "SEALMAIL_PASSPHRASE_FILE"  # noqa: S105 - a name, no secret
# And the next one, when it is changed.
NEW_PASSPHRASE_FILE = "SEALMAIL_NEW_PASSPHRASE_FILE"  # noqa: S105 - a name, no secret


def ask_passphrase() -> str:
    """Return the passphrase of a key that has one."""
    given = _from_file(PASSPHRASE_FILE)
    return _typed("Passphrase of your key: ") if given is None else given


def ask_new_passphrase(variable: str = PASSPHRASE_FILE) -> str:
    """Return a passphrase for a key, typed twice; the file that ``variable`` names spares that."""
    given = _from_file(variable)
    if given is not None:
        return given
    while True:
        first = _typed("A passphrase for your key: ")
        if not first:
            print("the passphrase is empty; use --no-passphrase if you want none", file=sys.stderr)
        elif first == _typed("The same again: "):
            return first
        else:
            print("the two passphrases differ; try again", file=sys.stderr)


def _typed(question: str) -> str:
    """Ask at the terminal; without one there is nobody to ask."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", getpass.GetPassWarning)
        try:
            return getpass.getpass(question)
        except (getpass.GetPassWarning, EOFError):
            raise WrongPassphrase(
                f"there is no terminal to ask at; name a file in {PASSPHRASE_FILE}"
            ) from None


def _from_file(variable: str) -> str | None:
    named = os.environ.get(variable)
    if not named:
        return None
    try:
        return Path(named).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise WrongPassphrase(f"reading {variable} ({error})") from None
