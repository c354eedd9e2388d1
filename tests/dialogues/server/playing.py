"""Dialogues: text files of ``C>`` and ``S>`` lines, played against a running server.

``[role, role]`` opens a new connection for each role and plays the lines below it. ``C>`` sends
a line, ``C=`` sends text without a line end, ``T>`` does the TLS handshake. ``S>`` is a line that
must come, where ``...`` stands for anything; ``S> (closed)`` is the end of the connection. A
name in braces stands for a text or for the lines of a block; the cast may have another for a
role, under ``name@role``. ``#`` begins a comment.
"""

import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sealmail_net.tls import client_context
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.command_codec import parse_command
from sealmail_protocol.commands import BodyCommand, Command

BEFORE_TLS = "before-tls"
ANONYMOUS = "anonymous"
BANNER = "CONFIDANT MAIL SERVER PROTOCOL 1 READY"
# What an original speaks, and nothing else.
ORIGINALS_CIPHER = "ECDHE-RSA-AES256-GCM-SHA384"
_CLOSED = "(closed)"
_STEP = re.compile(r"(C>|C=|S>|T>) ?(.*)")
_NAME = re.compile(r"\{([a-z0-9_]+)\}")

Cast = Mapping[str, str | tuple[str, ...]]


@dataclass(frozen=True)
class Step:
    """One line of a dialogue, and where it stands."""

    kind: str
    text: str
    place: str


@dataclass(frozen=True)
class Scene:
    """What is said on one connection of one role."""

    role: str
    steps: tuple[Step, ...]


def old_context() -> ssl.SSLContext:
    """Return the context of a client that can do what an original can, and no more."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(ORIGINALS_CIPHER)
    return context


def read_scenes(path: Path, cast: Cast) -> Iterator[Scene]:
    """Read a file; every role of a heading gives a scene of its own."""
    roles: tuple[str, ...] = ()
    lines: list[tuple[str, str, str]] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        place = f"{path.name}:{number}"
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            yield from (_scene(role, lines, cast) for role in roles)
            roles, lines = tuple(line.strip("[]").split(", ")), []
            continue
        match = _STEP.fullmatch(line)
        assert match, f"{place}: {line!r} is no step"
        lines.append((match[1], match[2], place))
    yield from (_scene(role, lines, cast) for role in roles)


def exchanges_of(scene: Scene) -> Iterator[tuple[Command, str]]:
    """Return each command of a scene with the next line of the server.

    What only looks like a command inside a body is none.
    """
    in_body = False
    for number, step in enumerate(scene.steps):
        if step.kind != "C>":
            continue
        if in_body:
            in_body = step.text != "EndBlock" and not step.text.startswith("Data:")
            continue
        try:
            command = parse_command(step.text.encode())
        except ValueError:
            continue
        in_body = isinstance(command, BodyCommand)
        yield command, next(each.text for each in scene.steps[number:] if each.kind == "S>")


class Player:
    """A client that says exactly what the dialogue says."""

    def __init__(
        self,
        address: ServerAddress,
        source: str = "127.0.0.1",
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._context = context or client_context()
        self._socket: socket.socket | ssl.SSLSocket = socket.create_connection(
            (address.host, address.port), timeout=20, source_address=(source, 0)
        )
        self._heard = b""

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def enter(self, role: str, logins: Mapping[str, tuple[str, str]]) -> None:
        """Take up a role: the banner, TLS and a login as far as it needs them."""
        self.expect(BANNER, "banner")
        if role == BEFORE_TLS:
            return
        self.say("STARTTLS")
        self.expect("PROCEED", "STARTTLS")
        self.start_tls()
        self.expect("ENCRYPTED", "TLS")
        if role != ANONYMOUS:
            self.say("LOGIN {} {}".format(*logins[role]))
            self.expect("DONE", f"LOGIN as {role}")

    def play(self, steps: tuple[Step, ...]) -> None:
        """Say and hear one step after the other."""
        for step in steps:
            match step.kind:
                case "C>":
                    self.say(step.text)
                case "C=":
                    self.send(step.text.encode())
                case "T>":
                    self.start_tls()
                case _:
                    self.expect(step.text, step.place)

    def say(self, line: str) -> None:
        """Send a line."""
        self.send(line.encode() + b"\r\n")

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def start_tls(self) -> None:
        """Do the handshake."""
        assert not self._heard, self._heard
        self._socket = self._context.wrap_socket(self._socket)

    def expect(self, wanted: str, place: str) -> None:
        """Hear a line, and compare it."""
        heard = self.hear()
        pattern = ".*".join(map(re.escape, wanted.split("...")))
        assert re.fullmatch(pattern, heard), f"{place}: wanted {wanted!r}, heard {heard!r}"

    def hear(self) -> str:
        """Return the next line."""
        while b"\r\n" not in self._heard:
            try:
                received = self._socket.recv(65_536)
            except (ConnectionError, ssl.SSLError):
                received = b""
            if not received:
                return self._heard.decode() or _CLOSED
            self._heard += received
        line, _, self._heard = self._heard.partition(b"\r\n")
        return line.decode()

    def take(self, count: int) -> bytes:
        """Return the next bytes, whatever they are."""
        while len(self._heard) < count:
            received = self._socket.recv(65_536)
            assert received, "the connection ended"
            self._heard += received
        taken, self._heard = self._heard[:count], self._heard[count:]
        return taken


def _scene(role: str, lines: list[tuple[str, str, str]], cast: Cast) -> Scene:
    steps = (
        Step(kind, spoken, place)
        for kind, text, place in lines
        for spoken in _spoken(text, role, cast)
    )
    return Scene(role, tuple(steps))


def _spoken(text: str, role: str, cast: Cast) -> tuple[str, ...]:
    def meant(name: str) -> str | tuple[str, ...]:
        special = f"{name}@{role}"
        return cast[special if special in cast else name]

    whole = _NAME.fullmatch(text)
    if whole and isinstance(lines := meant(whole[1]), tuple):
        return lines
    return (_NAME.sub(lambda match: str(meant(match[1])), text),)
