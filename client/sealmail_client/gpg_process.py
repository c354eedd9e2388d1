"""One gpg at work on bytes that are fed to it and read from it while it works."""

import fcntl
import io
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Self, cast

from sealmail_client.gpg_status import Status
from sealmail_client.gpg_streams import Readable

# As large as the system lets everybody have it: fewer turns between gpg and us.
_PIPE_BYTES = 1024 * 1024
_CHUNK = 256 * 1024


class GpgProcess:
    """A running gpg; as a context manager it does not outlive its block."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], inherited: int
    ) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            pass_fds=(inherited,),
        )
        # Buffered, as subprocess makes them unless told otherwise.
        self._input = cast(io.BufferedWriter, self._process.stdin)
        self._output = cast(io.BufferedReader, self._process.stdout)
        self._errors = cast(io.BufferedReader, self._process.stderr)
        for pipe in (self._input, self._output):
            with suppress(OSError):
                fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._deaf = False
        self._said: list[bytes] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._process.poll() is None and kind is not None:
            self._process.kill()
        self.finish()

    def write(self, chunk: bytes) -> None:
        """Hand over the next bytes; a gpg that has read enough is not told."""
        if self._deaf:
            return
        try:
            self._input.write(chunk)
        except BrokenPipeError:
            self._deaf = True

    def pass_through(self, source: Readable, take: Callable[[bytes], object]) -> None:
        """Feed gpg from ``source`` and hand what it makes of it to ``take``, in chunks.

        What ``take`` raises ends gpg and is raised here; ``source`` is read in a thread.
        """
        feeder = threading.Thread(target=self._feed, args=(source,), daemon=True)
        feeder.start()
        try:
            while chunk := self._output.read1(_CHUNK):
                take(chunk)
        except BaseException:
            self._process.kill()
            raise
        finally:
            feeder.join()

    def finish(self) -> Status:
        """End the bytes, and return what gpg said of them when it ended."""
        with suppress(BrokenPipeError):
            self._input.close()
        self._process.wait()
        self._listener.join()
        for pipe in (self._output, self._errors):
            pipe.close()
        return Status.read(b"".join(self._said).decode("latin-1"))

    def _feed(self, source: Readable) -> None:
        while not self._deaf and (chunk := source.read(_CHUNK)):
            self.write(chunk)
        with suppress(BrokenPipeError):
            self._input.close()

    def _listen(self) -> None:
        while said := self._errors.read1(_CHUNK):
            self._said.append(said)
