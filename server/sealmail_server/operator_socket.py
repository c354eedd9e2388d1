"""The Unix socket in the data directory: one line of JSON asks, one line answers.

Mode 0600 in a directory of mode 0700: whoever may connect may change the files as well.
"""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from sealmail_server.operator import Operator, OperatorError, Request

SOCKET_NAME = "operator.sock"
MAX_LINE = 16 * 1024 * 1024
_ASK_SECONDS = 10.0
# A socket's path has about 108 bytes; a longer one is taken by way of the directory's number.
_MAX_PATH = 100


class NoServerRuns(ConnectionError):
    """No server runs in this directory; the store may be opened instead."""


@asynccontextmanager
async def operator_desk(directory: Path, operator: Operator) -> AsyncIterator[None]:
    """Serve requests through the socket; only who holds the store's lock may open it."""
    path = directory / SOCKET_NAME
    # What lies there is of a server that died: we have its lock.
    path.unlink(missing_ok=True)
    with _private_socket(directory) as listening:
        server = await asyncio.start_unix_server(
            lambda reader, writer: _serve(operator, reader, writer),
            sock=listening,
            limit=MAX_LINE,
        )
        try:
            yield
        finally:
            server.close()
            path.unlink(missing_ok=True)


def ask_running_server(directory: Path, request: Request) -> Any:
    """Return the running server's answer; ``NoServerRuns`` if there is none to ask.

    ``OperatorError`` is the server's own refusal, or that it ended before it answered: what was
    asked may have been done then.
    """
    with socket.socket(socket.AF_UNIX) as talking, _reachable(directory) as path:
        try:
            talking.connect(path)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise NoServerRuns(f"no server is running in {directory}") from error
        try:
            talking.sendall(json.dumps(request).encode() + b"\n")
            with talking.makefile("rb") as answers:
                line = answers.readline(MAX_LINE)
        except ConnectionError as error:
            raise OperatorError("the server ended before it answered") from error
    if not line.endswith(b"\n"):
        raise OperatorError("the server ended before it answered")
    answer = json.loads(line)
    if "error" in answer:
        raise OperatorError(answer["error"])
    return answer["result"]


async def _serve(
    operator: Operator, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    try:
        async with asyncio.timeout(_ASK_SECONDS):
            line = await reader.readline()
        writer.write(json.dumps(await _answer(operator, line)).encode() + b"\n")
        await writer.drain()
    except (TimeoutError, ValueError, ConnectionError):
        # The operator's program has gone away, or it never was one.
        pass
    finally:
        writer.close()


async def _answer(operator: Operator, line: bytes) -> dict[str, Any]:
    try:
        request = json.loads(line)
    except ValueError:
        return {"error": "not a line of JSON"}
    if not isinstance(request, dict):
        return {"error": "not a request"}
    try:
        return {"result": await operator.fulfil(request)}
    except OperatorError as error:
        return {"error": str(error)}


@contextmanager
def _private_socket(directory: Path) -> Iterator[socket.socket]:
    listening = socket.socket(socket.AF_UNIX)
    try:
        with _reachable(directory) as path:
            listening.bind(path)
            # Nobody can connect before it listens.
            (directory / SOCKET_NAME).chmod(0o600)
        listening.listen()
        yield listening
    finally:
        listening.close()


@contextmanager
def _reachable(directory: Path) -> Iterator[str]:
    """Yield a path of the socket that is short enough, while the directory is held open."""
    path = str(directory / SOCKET_NAME)
    if len(os.fsencode(path)) <= _MAX_PATH:
        yield path
        return
    number = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{number}/{SOCKET_NAME}"
    finally:
        os.close(number)
