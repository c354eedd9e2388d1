"""One gpg at work on bytes that are fed to it and read from it while it works."""

import fcntl
import io
import select
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Self, cast

from sealmail_client.errors import BadMessage, GpgFailed
from sealmail_client.gpg_status import Status, Transcript
from sealmail_client.gpg_streams import Readable
from sealmail_client.seal_head import MAX_READERS, TOO_MANY_READERS

# As large as the system lets everybody have it: fewer turns between gpg and us.
_PIPE_BYTES = 1024 * 1024
_CHUNK = 256 * 1024
# How often a gpg that says nothing is looked at.
_LOOK_EVERY = 1.0

# How long the processor may work on what a stranger sent, by what passes through gpg: ten times
# what a slow machine needs. Little can unpack to packets without end, of which nothing is written.
_SPARE_SECONDS = 30.0
_SECONDS_PER_READER = 0.02
_SECONDS_PER_BYTE = 1 / (1024 * 1024)
# Linux tells the time of another process by a clock that is numbered like this.
_CLOCK_BITS, _CLOCK_KIND = 3, 2

# How often gpg may say what a stranger can have it say without end, and what is wrong otherwise.
# Readers were counted in the seal, but seals may lie in seals.
_MOST: Final = {
    "ENC_TO": (MAX_READERS, TOO_MANY_READERS),
    "NEED_PASSPHRASE_SYM": (1, "it is sealed with passwords, not to a key"),
}


class GpgProcess:
    """A running gpg; as a context manager it does not outlive its block.

    One that has something to do, and for ``patience`` seconds does nothing, is ended; so is one
    that works for much longer than its input is worth.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        inherited: Sequence[int],
        patience: float,
    ) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            pass_fds=tuple(inherited),
        )
        # Buffered, as subprocess makes them unless told otherwise.
        self._input = cast(io.BufferedWriter, self._process.stdin)
        self._output = cast(io.BufferedReader, self._process.stdout)
        self._errors = cast(io.BufferedReader, self._process.stderr)
        for pipe in (self._input, self._output):
            with suppress(OSError):
                fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._deaf = False
        self._patience = patience
        self._spare = min(_SPARE_SECONDS, patience)
        self._given = self._taken = 0
        # It owes us an answer: it was given bytes that it does not take, or their end.
        self._owing = False
        # It may have to wait for us instead: what it wrote is not taken from it.
        self._taking = False
        self._moved, self._worked = time.monotonic(), 0.0
        self._fault: Exception | None = None
        self._transcript = Transcript()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._process.poll() is None and kind is not None:
            self._process.kill()
        self._end()

    @property
    def exit_code(self) -> int | None:
        """Return how it ended, ``None`` as long as it works."""
        return self._process.poll()

    def write(self, chunk: bytes) -> None:
        """Hand over the next bytes; a gpg that has read enough is not told."""
        if self._deaf:
            return
        self._moved, self._owing = time.monotonic(), True
        self._given += len(chunk)
        try:
            self._input.write(chunk)
        except BrokenPipeError:
            self._deaf = True
        finally:
            self._owing = False

    def pass_through(self, source: Readable, take: Callable[[bytes], object]) -> None:
        """Feed gpg from ``source`` and hand what it makes of it to ``take``, in chunks.

        What ``take`` raises ends gpg and is raised here; ``source`` is read in a thread.
        """
        feeder = threading.Thread(target=self._feed, args=(source,), daemon=True)
        feeder.start()
        try:
            while chunk := self._output.read1(_CHUNK):
                self._taking = True
                self._taken += len(chunk)
                take(chunk)
                self._moved, self._taking = time.monotonic(), False
        except BaseException:
            self._process.kill()
            raise
        finally:
            feeder.join()

    def finish(self, doing: str) -> Status:
        """End the bytes, and return what gpg said of them when it ended.

        ``GpgFailed`` if it did not come to an end of its own, and ``BadMessage`` if it could not
        because of what it was given.
        """
        self._end()
        if self._fault is not None:
            raise self._fault
        status, code = self._transcript.status(), self._process.returncode
        if code < 0:
            raise GpgFailed(doing, f"it was ended by signal {-code}")
        if code != 0 and not status.tells_of_input:
            details = status.last_remark or f"it ended with code {code}"
            raise GpgFailed(doing, details, gave_up=True)
        return status

    def _end(self) -> None:
        self._close_input()
        self._process.wait()
        self._listener.join()
        for pipe in (self._output, self._errors):
            pipe.close()

    def _feed(self, source: Readable) -> None:
        while not self._deaf and (chunk := source.read(_CHUNK)):
            self.write(chunk)
        self._close_input()

    def _close_input(self) -> None:
        self._moved, self._owing = time.monotonic(), True
        with suppress(BrokenPipeError):
            self._input.close()

    def _listen(self) -> None:
        """Hear what gpg says, and end one that says too much of it, or does not move."""
        ready = select.poll()
        ready.register(self._errors, select.POLLIN | select.POLLHUP)
        pause = min(_LOOK_EVERY, self._patience) * 1000
        while True:
            heard = ready.poll(pause)
            self._look()
            if self._is_overworked():
                self._give_up(BadMessage("it keeps gpg at work for too long for its size"))
            if not heard:
                if self._stands_still():
                    self._give_up(GpgFailed("its work", "it stands still"))
                continue
            said = self._errors.read1(_CHUNK)
            if not said:
                return
            self._moved = time.monotonic()
            self._transcript.hear(said)
            for keyword, (most, reason) in _MOST.items():
                if self._transcript.said[keyword] > most:
                    self._give_up(BadMessage(reason))

    def _stands_still(self) -> bool:
        idle = time.monotonic() - self._moved
        return self._owing and not self._taking and idle > self._patience

    def _is_overworked(self) -> bool:
        worth = (self._given + self._taken) * _SECONDS_PER_BYTE
        worth += self._transcript.said["ENC_TO"] * _SECONDS_PER_READER
        return self._worked > self._spare + worth

    def _look(self) -> None:
        """Note how long the processor worked for gpg; while it does, gpg does not stand still."""
        if self._process.returncode is not None:
            return
        with suppress(OSError):
            clock = ~self._process.pid << _CLOCK_BITS | _CLOCK_KIND
            worked = time.clock_gettime(clock)
            if worked > self._worked:
                self._moved, self._worked = time.monotonic(), worked

    def _give_up(self, fault: Exception) -> None:
        self._fault = self._fault or fault
        self._process.kill()
