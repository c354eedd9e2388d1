"""A home directory of GnuPG, the options that gpg always runs with there, and its agent."""

import logging
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import gnupg

from sealmail_client.errors import GpgFailed, HomeUnusable, WrongPassphrase
from sealmail_client.gpg_process import GpgProcess
from sealmail_client.gpg_status import Status

# It writes its input to the debug log, and each refusal of gpg as a warning; ours are errors.
logging.getLogger("gnupg").setLevel(logging.CRITICAL)

_OPTIONS: Final = (
    *("--no-options", "--display-charset=utf-8", "--utf8-strings"),
    *("--trust-model=always", "--no-auto-check-trustdb"),
    *("--disable-dirmngr", "--no-auto-key-retrieve", "--no-auto-key-locate"),
    *("--no-emit-version", "--no-comments", "--no-encrypt-to", "--no-symkey-cache"),
)
# Passphrases come from us, not from a window of the agent.
_LOOPBACK: Final = "--pinentry-mode=loopback"
# A Unix socket's path has 107 bytes at most, and the agent's longest ends in ``.browser``.
_MAX_SOCKET_PATH = 107 - len(".browser")
_PIPE_CHUNK = 256 * 1024
# For how long a gpg may do nothing although it could. An agent may have to wait for its user.
_PATIENCE = 300.0
_PATIENCE_WITH_AGENT = 3600.0


@dataclass(frozen=True, slots=True)
class GpgRun:
    """What one gpg left behind."""

    status: Status
    output: bytes = field(repr=False)
    exit_code: int

    def require_done(self, doing: str) -> bytes:
        """Return the output; raise what kept gpg from ``doing``."""
        if self.status.wrong_passphrase:
            raise WrongPassphrase(doing)
        if self.exit_code != 0 or self.status.has("FAILURE") or self.status.has("ERROR"):
            raise GpgFailed(doing, self.status.last_remark)
        return self.output


class GpgHome:
    """The directory ``home``, which is made if it is not there.

    With ``agent`` passphrases are not ours to know: gpg-agent asks the user itself and remembers
    the answer, or knows a smartcard. ``patience`` is for how many seconds gpg may stand still.
    """

    def __init__(self, home: Path, *, agent: bool = False, patience: float | None = None) -> None:
        self._patience = patience or (_PATIENCE_WITH_AGENT if agent else _PATIENCE)
        self.home = home.absolute()
        self.agent = agent
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.home.chmod(0o700)
        # Messages of gpg are matched in one place below, so they must not be translated.
        environment = {**os.environ, "LC_ALL": "C.UTF-8", "LANGUAGE": "C"}
        if agent and sys.stdin is not None and sys.stdin.isatty():
            # A pinentry in the terminal must be told which.
            environment.setdefault("GPG_TTY", os.ttyname(sys.stdin.fileno()))
        self._environment = environment
        self._options = _OPTIONS if agent else (*_OPTIONS, _LOOPBACK)
        try:
            self._check_socket_path(environment)
            # Latin-1 reads whatever bytes gpg writes; what we write is encoded by ourselves.
            self._gpg = gnupg.GPG(
                gnupghome=str(self.home),
                options=list(self._options),
                env=environment,
                encoding="latin-1",
            )
        except (OSError, ValueError) as error:
            raise GpgFailed("its start", str(error)) from None
        self._gpg.buffer_size = _PIPE_CHUNK

    def run(
        self,
        *arguments: str,
        given: bytes = b"",
        passphrase: str | None = None,
        ask: bool = False,
    ) -> "GpgRun":
        """Run gpg for what the library does not know; ``given`` is its standard input.

        With ``ask`` it asks for passphrases there too, instead of being told ``passphrase``.
        """
        reading_end, known = self._told(passphrase, ask=ask)
        try:
            done = subprocess.run(
                self._command(*known, *arguments),
                input=given,
                capture_output=True,
                env=self._environment,
                pass_fds=(reading_end,),
                check=False,
                timeout=None if ask else self._patience,
            )
        except subprocess.TimeoutExpired:
            raise GpgFailed("its work", "it stands still") from None
        finally:
            os.close(reading_end)
        return GpgRun(Status.read(done.stderr.decode("latin-1")), done.stdout, done.returncode)

    def start(
        self, *arguments: str, passphrase: str | None = None, inherited: tuple[int, ...] = ()
    ) -> GpgProcess:
        """Start gpg on bytes that come and go while it works.

        It may read the files ``inherited`` too, by their descriptors.
        """
        reading_end, known = self._told(passphrase)
        try:
            return GpgProcess(
                self._command(*known, "--batch", *arguments),
                self._environment,
                (reading_end, *inherited),
                self._patience,
            )
        finally:
            os.close(reading_end)

    def _command(self, *arguments: str) -> tuple[str, ...]:
        return (
            *(self._gpg.gpgbinary, "--homedir", str(self.home), "--no-tty"),
            *("--status-fd", "2", *self._options, *arguments),
        )

    def _told(self, passphrase: str | None, *, ask: bool = False) -> tuple[int, tuple[str, ...]]:
        """Return a pipe from which gpg reads the passphrase, and the options that name it."""
        reading_end, writing_end = os.pipe()
        os.write(writing_end, f"{passphrase or ''}\n".encode())
        os.close(writing_end)
        known = () if self.agent or ask else ("--passphrase-fd", str(reading_end))
        return reading_end, known

    def forget_passphrases(self) -> None:
        """End the agent of this home, and with it what it remembers."""
        subprocess.run(
            ["gpgconf", "--homedir", str(self.home), "--kill", "all"],  # noqa: S607
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )

    def close(self) -> None:
        """End the agent that gpg started for this home, unless the user chose to rely on it."""
        if not self.agent:
            self.forget_passphrases()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_socket_path(self, environment: dict[str, str]) -> None:
        """Refuse a home so deep that the agent could not open its socket there."""
        found = subprocess.run(
            ["gpgconf", "--homedir", str(self.home), "--list-dirs", "agent-socket"],  # noqa: S607
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=environment,
            check=False,
        )
        socket_path = found.stdout.strip()
        if len(socket_path) > _MAX_SOCKET_PATH:
            spare = len(socket_path) - _MAX_SOCKET_PATH
            raise HomeUnusable(
                f"the path {self.home} is too long for GnuPG's agent: "
                f"choose a directory whose path is {spare} bytes shorter"
            )
