"""Runs ``sealmail``, and kills it like a power cut at one change of its database.

Arguments: ``before`` or ``after`` the commit, the change as ``named`` calls it, and the words of
the command. Nothing is cleaned up: no ``finally`` runs, and what gpg started goes on alone.
"""

import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

from sealmail_client import desk
from sealmail_client.cli import main
from sealmail_client.home_database import HomeDatabase
from sealmail_client.inbox import Step
from sealmail_client.outbox import Stage

MESSAGE_TABLES = (
    "outgoing",
    "outgoing_data",
    "outgoing_recipient",
    "outgoing_taken",
    "proxied",
    "incoming",
    "mail",
    "mailbox",
)


def named(statement: str, values: Sequence[object]) -> str:
    """Name a change of a message by its table and the stage or step it comes to; others not."""
    found = re.search(r"(?:INTO|UPDATE|FROM) (\w+)", statement)
    assert found is not None
    if found[1] not in MESSAGE_TABLES:
        return ""
    reached = [one for one in values if isinstance(one, Stage | Step)]
    return " ".join((found[1], *reached))


class KillingDatabase(HomeDatabase):
    """The program is killed at the first commit that holds ``change``, at ``moment``."""

    moment: ClassVar[str]
    change: ClassVar[str]
    _begun = False

    def write(self, statement: str, *values: object) -> int:
        """Write, in a commit of its own unless one is begun."""
        if named(statement, values) == self.change:
            self._begun = True
        if self._connection.in_transaction:
            return super().write(statement, *values)
        with self.unit():
            return super().write(statement, *values)

    @contextmanager
    def unit(self) -> Iterator[None]:
        """Commit all of it or nothing."""
        with super().unit():
            yield
            self._die("before")
        self._die("after")

    def _die(self, moment: str) -> None:
        if self._begun and moment == self.moment:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    KillingDatabase.moment, KillingDatabase.change, *words = sys.argv[1:]
    vars(desk)["HomeDatabase"] = KillingDatabase
    main(words, prog_name="sealmail")
