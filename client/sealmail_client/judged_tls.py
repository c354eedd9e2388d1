"""TLS by pyOpenSSL: the chain that a server shows is judged by a CA store, and never refused.

The standard library either refuses a session over its certificate or says nothing of it. Here the
very handshake is judged by OpenSSL's own rules for servers (signatures, times, purposes, name
constraints), the session goes on in any case, and the verdict stands beside the certificate.
"""

import asyncio
import logging
import ssl
from pathlib import Path

from OpenSSL import SSL, crypto

from sealmail_net.handshakes import Shown
from sealmail_net.tls import CIPHERS

# Certificates between that of a server and a CA's own; the public CAs need two or three.
_MOST_BETWEEN = 8
_PIECE = 64 * 1024
# What one TLS record holds; OpenSSL takes no more at once.
_RECORD = 16 * 1024

_log = logging.getLogger(__name__)


class NoCertificates(ValueError):
    """The file or directory holds no certificates of CAs."""


class JudgedHandshake:
    """Shakes hands with servers; ``store`` holds CA certificates, by default the system's do.

    It is a file of them in PEM, or a directory made by ``openssl rehash``.
    """

    def __init__(self, store: Path | None = None) -> None:
        self._context = SSL.Context(SSL.TLS_CLIENT_METHOD)
        self._context.set_min_proto_version(SSL.TLS1_2_VERSION)
        self._context.set_max_proto_version(SSL.TLS1_3_VERSION)
        self._context.set_cipher_list(CIPHERS.encode())
        self._context.set_options(SSL.OP_NO_COMPRESSION | SSL.OP_NO_RENEGOTIATION)
        self._context.set_verify(SSL.VERIFY_PEER, _note)
        self._context.set_verify_depth(_MOST_BETWEEN)
        for file, directory in _places(store):
            try:
                self._context.load_verify_locations(file, directory)
            except SSL.Error as error:
                raise NoCertificates(f"{file or directory} holds no CA certificates") from error

    async def __call__(
        self, socket: asyncio.Transport, link: asyncio.Protocol, deadline: float
    ) -> tuple[asyncio.Transport, Shown]:
        """Return the transport inside TLS, and what was shown; ``OSError`` if that failed."""
        findings = _Findings()
        connection = SSL.Connection(self._context, None)
        connection.set_app_data(findings)
        connection.set_connect_state()
        layer = _TlsLayer(connection, socket, link)
        try:
            async with asyncio.timeout(deadline):
                await layer.shake_hands()
        except TimeoutError:
            socket.abort()
            raise ConnectionAbortedError("the TLS handshake took too long") from None
        except BaseException:
            socket.abort()
            raise
        certificate = connection.get_peer_certificate()
        if certificate is None:
            return layer, Shown()
        der = crypto.dump_certificate(crypto.FILETYPE_ASN1, certificate)
        return layer, Shown(der, findings.holds)


def judged_handshake(store: Path | None) -> JudgedHandshake | None:
    """Return the handshake with this CA store, ``None`` if that cannot be read.

    Whoever gets ``None`` earns no marks, and goes on: a mark never stands between us and mail.
    """
    try:
        return JudgedHandshake(store)
    except NoCertificates as error:
        _log.warning("no certificate is judged: %s", error)
        return None


class _Findings:
    """What OpenSSL said of one chain."""

    def __init__(self) -> None:
        self.reached_the_leaf = False
        self.objections = 0

    @property
    def holds(self) -> bool:
        """Return whether all of the chain was looked at and nothing spoke against it."""
        return self.reached_the_leaf and not self.objections


def _note(
    connection: SSL.Connection, certificate: crypto.X509, error: int, depth: int, good: int
) -> bool:
    """Take note of one verdict on the chain, and go on: the session counts without it."""
    del certificate, error
    findings = connection.get_app_data()
    if not good:
        findings.objections += 1
    elif depth == 0:
        findings.reached_the_leaf = True
    return True


def _places(store: Path | None) -> list[tuple[str | None, str | None]]:
    """Return the files and directories to load, each alone, so that each is told apart."""
    if store is not None:
        return [(None, str(store)) if store.is_dir() else (str(store), None)]
    system = ssl.get_default_verify_paths()
    places: list[tuple[str | None, str | None]] = []
    if system.cafile is not None:
        places.append((system.cafile, None))
    if system.capath is not None:
        places.append((None, system.capath))
    return places


class _TlsLayer(asyncio.Transport, asyncio.Protocol):
    """Between a socket and a link: a protocol to the one, a transport to the other.

    Nothing is held back here: what is written is encrypted and handed to the socket at once, so
    that its buffer alone counts; what arrives is decrypted and handed on at once.
    """

    def __init__(
        self, connection: SSL.Connection, socket: asyncio.Transport, link: asyncio.Protocol
    ) -> None:
        super().__init__()
        self._connection = connection
        self._socket = socket
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._open = False
        self._closing = False

    async def shake_hands(self) -> None:
        """Return when both sides are inside TLS."""
        self._socket.set_protocol(self)
        self._go_on_shaking()
        self._socket.resume_reading()
        await self._done
        # What came right behind the handshake waits until the link knows that it is inside.
        self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._open = True
        self._read()

    def _go_on_shaking(self) -> None:
        try:
            self._connection.do_handshake()
        except SSL.WantReadError:
            self._flush()
        except SSL.Error as error:
            # An alert, by which the peer learns why.
            self._flush()
            self._fail(ConnectionResetError(_reason(error)))
        else:
            self._flush()
            if not self._done.done():
                self._done.set_result(None)

    def _fail(self, error: Exception) -> None:
        if not self._done.done():
            self._done.set_exception(error)

    # Called by the socket.

    def data_received(self, data: bytes) -> None:
        """Take bytes of TLS."""
        self._connection.bio_write(data)
        if not self._done.done():
            self._go_on_shaking()
        elif self._open:
            self._read()

    def eof_received(self) -> bool:
        """Note the peer's end, which inside TLS is ours too."""
        if self._open:
            self._link.eof_received()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end; before the end of the handshake only the handshake hears of it."""
        if self._done.done() and not self._done.cancelled() and self._done.exception() is None:
            self._link.connection_lost(exc)
        else:
            self._fail(exc or ConnectionResetError("the connection ended"))

    def pause_writing(self) -> None:
        """Tell the link that the peer does not take what we send."""
        self._link.pause_writing()

    def resume_writing(self) -> None:
        """Tell the link that it may go on."""
        self._link.resume_writing()

    # Called by the link.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send."""
        view = memoryview(data).cast("B")
        try:
            while view:
                view = view[self._connection.send(view[:_RECORD]) :]
                self._flush()
        except SSL.Error as error:
            self._break(error)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set when the link is told to wait."""
        self._socket.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Return what waits here: nothing, it all lies with the socket."""
        return 0

    def is_closing(self) -> bool:
        """Return whether the end has begun."""
        return self._closing or self._socket.is_closing()

    def close(self) -> None:
        """Say the end of TLS, and close when all has left."""
        if self._closing:
            return
        self._closing = True
        try:
            self._connection.shutdown()
        except SSL.Error as error:
            _log.debug("no end of TLS was said: %s", _reason(error))
        self._flush()
        self._socket.close()

    def abort(self) -> None:
        """End at once."""
        self._closing = True
        self._socket.abort()

    # Between the two.

    def _read(self) -> None:
        while not self._socket.is_closing():
            try:
                data = self._connection.recv(_PIECE)
            except SSL.WantReadError:
                break
            except SSL.ZeroReturnError:
                self._link.eof_received()
                self.close()
                return
            except SSL.Error as error:
                self._break(error)
                return
            self._link.data_received(data)
        self._flush()

    def _flush(self) -> None:
        """Hand to the socket what OpenSSL has for the peer."""
        if self._socket.is_closing():
            return
        while True:
            try:
                piece = self._connection.bio_read(_PIECE)
            except SSL.WantReadError:
                return
            self._socket.write(piece)

    def _break(self, error: SSL.Error) -> None:
        """End a session that is no TLS any more; the link is told why."""
        self._flush()
        self._loop.call_soon(self._link.connection_lost, ConnectionResetError(_reason(error)))
        self._link = asyncio.Protocol()
        self._closing = True
        self._socket.abort()


def _reason(error: SSL.Error) -> str:
    """Return what OpenSSL said last, in a few words."""
    queue = error.args[0] if error.args and isinstance(error.args[0], list) else []
    words = [str(entry[-1]) for entry in queue if entry and entry[-1]]
    return words[-1] if words else str(error) or type(error).__name__
