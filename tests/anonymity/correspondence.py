"""What users and operators do in the tests of anonymous networks, with patience for these."""

import json
import subprocess
import time
from collections.abc import Callable
from typing import Any, TypeVar

from tests.end_to_end.programs import PROGRAMS, Done, Server, User

T = TypeVar("T")

# Circuits and tunnels are built while the machine does other things too.
_PATIENCE = 90.0


def operator_asks(server: Server, *arguments: str) -> Any:
    """Return the JSON that a command of the operator prints."""
    command = [str(PROGRAMS / "sealmaild"), *arguments, "--data", str(server.directory), "--json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True).stdout)


def doctor_of(server: Server) -> dict[str, bool]:
    """Return which parts the doctor finds well."""
    return {row["part"]: row["well"] for row in operator_asks(server, "doctor")["findings"]}


def eventually(attempt: Callable[[], T]) -> T:
    """Return what ``attempt`` gives once it is true: descriptors take their time to spread."""
    end = time.monotonic() + _PATIENCE
    while not (result := attempt()):
        assert time.monotonic() < end, "in vain"
        time.sleep(0.5)
    return result


def sends(sender: User, to: User, subject: str, *options: str) -> Done:
    """Send a mail whose recipient is sought at the sender's own server, or as the options say."""
    words = ("send", "--to", to.address, "--subject", subject, "--message", "text", *options)
    return sender.tries(*words)


def pins_of(user: User) -> list[dict[str, str]]:
    """Return which keys a user has seen on which ways."""
    pins: list[dict[str, str]] = user.does("server", "pins", "--json").value
    return pins


def ways_of(user: User) -> set[str]:
    """Return by which kinds of ways a user has met servers."""
    return {row["way"].partition(" ")[0] for row in pins_of(user)}


def correspond(sender: User, to: User, subject: str, *options: str) -> None:
    """Send a mail, fetch it, and see that its acknowledgment has come back."""
    done = sends(sender, to, subject, *options)
    assert done.exit_code == 0, done

    def arrived() -> bool:
        to.does("fetch")
        return subject in to.subjects()

    eventually(arrived)

    def acknowledged() -> bool:
        states = [
            recipient["state"]
            for message in sender.does("acks", "--json").value
            if message["subject"] == subject
            for recipient in message["recipients"]
        ]
        return states == ["acknowledged"]

    eventually(acknowledged)
