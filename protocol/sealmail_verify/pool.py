"""Verification under an event loop: a few processes, each with one text at a time.

Each text has a process to itself while it is verified, so one that crashes or stalls it costs
no other text anything.
"""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Self

from sealmail_protocol.keys import KeyId
from sealmail_verify.clear_text import MAX_TEXT
from sealmail_verify.errors import BadSignature, BrokeVerifier, Undecided
from sealmail_verify.results import Verification
from sealmail_verify.worker import decode_answer, encode_request

# Longer than gpg's own deadline, so that gpg is normally ended in order and not by this one.
DEADLINE_SECONDS = 15.0
# A waiting text holds up to half a mebibyte in memory.
MAX_WAITING = 256

_WORKER = "from sealmail_verify.worker import main; main()"


class VerifierPool:
    """Verifies texts in at most ``size`` processes, which start when they are first needed.

    Belongs to one event loop. ``close`` it, or use it as an asynchronous context.
    """

    def __init__(
        self,
        size: int | None = None,
        *,
        gpg: str = "gpg",
        deadline: float = DEADLINE_SECONDS,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self._slots = asyncio.Semaphore(size or os.cpu_count() or 1)
        self._gpg = gpg
        self._deadline = deadline
        self._max_waiting = max_waiting
        self._waiting = 0
        self._idle: list[_Worker] = []
        self._closed = False

    async def verify(self, text: bytes, certificate: bytes, expected: KeyId) -> Verification:
        """Verify as ``Verifier.verify_clear_signed`` does, off the event loop.

        ``Undecided`` tells that too many texts wait, ``BrokeVerifier`` that the process died
        over this one, or that the deadline passed.
        """
        if max(len(text), len(certificate)) > MAX_TEXT:
            raise BadSignature(f"text or key of more than {MAX_TEXT} bytes")
        if self._waiting >= self._max_waiting:
            raise Undecided("too many texts wait to be verified")
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        try:
            return decode_answer(await self._ask(encode_request(text, certificate, expected)))
        finally:
            self._slots.release()

    async def _ask(self, request: bytes) -> bytes:
        """Have one worker answer; it goes back to the idle ones only if it did."""
        if self._closed:
            raise Undecided("the verifier is closed")
        worker = self._idle.pop() if self._idle else await _Worker.start(self._gpg)
        try:
            async with asyncio.timeout(self._deadline):
                answer = await worker.ask(request)
        except TimeoutError:
            await worker.end()
            raise BrokeVerifier("the text was not verified in time") from None
        except BaseException:
            await worker.end()
            raise
        if self._closed:
            await worker.end()
        else:
            self._idle.append(worker)
        return answer

    async def close(self) -> None:
        """End idle workers now, and busy ones as soon as they have answered."""
        self._closed = True
        while self._idle:
            await self._idle.pop().end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Worker:
    """One process, and the scratch directory that is removed with it."""

    def __init__(self, process: asyncio.subprocess.Process, scratch: Path) -> None:
        self._process = process
        self._scratch = scratch

    @classmethod
    async def start(cls, gpg: str) -> Self:
        """Start a process in a session of its own, so that it can be ended with its children."""
        scratch = Path(tempfile.mkdtemp(prefix="sealmail-"))
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-c", _WORKER, gpg, str(scratch)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except BaseException as error:
            shutil.rmtree(scratch, ignore_errors=True)
            if isinstance(error, OSError):
                raise Undecided(f"no process for the verifier: {error.strerror}") from None
            raise
        return cls(process, scratch)

    async def ask(self, request: bytes) -> bytes:
        """Return the answer line; a process that dies over it is ``Undecided``."""
        requests, answers = self._process.stdin, self._process.stdout
        if requests is None or answers is None:
            raise Undecided("the verifier process has no pipes")
        with suppress(ConnectionError):
            requests.write(request)
            await requests.drain()
        answer = await answers.readline()
        if not answer.endswith(b"\n"):
            raise BrokeVerifier("the verifier process died over this text")
        return answer

    async def end(self) -> None:
        """Kill the process with its children, wait for it, and remove what it left."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await self._process.wait()
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)
