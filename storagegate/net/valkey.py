"""
A client for Valkey, and for servers with the protocol of Redis 6 or newer (RESP 2).

A command is an array of byte strings, a reply one of five kinds (see
U{https://valkey.io/topics/protocol/}); C{hiredis} parses and formats them. Replies arrive in the
order of the commands, so many commands may be in flight on one connection::

    *2 CRLF $3 CRLF GET CRLF $1 CRLF k CRLF      the command GET k
    $5 CRLF hello CRLF                           a text;  $-1 CRLF is no value
    :7 CRLF   +OK CRLF   *2 CRLF ...             a number, a status, an array
    -NOSCRIPT No matching script CRLF            an error, which begins with its code

After the loss of a connection, it is unknown whether the commands in flight were executed, so none
is sent again.
"""

import socket
import ssl
from collections import deque
from collections.abc import Callable
from hashlib import sha1
from random import uniform
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import hiredis
from attrs import field, frozen
from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.endpoints import HostnameEndpoint, UNIXClientEndpoint, wrapClientTLS
from twisted.internet.error import ConnectingCancelledError
from twisted.internet.interfaces import IDelayedCall, IHandshakeListener, ITCPTransport
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.core.backoff import Backoff
from storagegate.net.tls import ClientTLSOptions, ServerContext, makeContext

ANSWER_SECONDS = 1.0
"""Timeout of a reply, after which the server counts as unavailable: users' requests wait for it."""

CONNECT_SECONDS = 2.0
"""Timeout to connect, including TLS and authentication."""

STEADY_SECONDS = 1.0
"""A shorter connection counts as a failed attempt: a replica accepts connections, but no writes."""

MAX_WAITING = 4096
"""Maximum number of commands in flight: twice the number of calls that the daemon admits at
once."""

MAX_BYTES = 64 * 1024 * 1024
"""Maximum number of bytes of the commands in flight: the size of an in-memory session store."""

PORT = 6379

_BACKOFF = Backoff(firstSeconds=0.1, maxSeconds=2.0, minSeconds=0.02)

_SCHEMES = {"valkey": False, "redis": False, "valkeys": True, "rediss": True}
"""URL schemes, and whether they use TLS."""

_GONE = ("READONLY", "LOADING", "MASTERDOWN", "NOAUTH", "CLUSTERDOWN", "MOVED")
"""Error codes of a server that does not accept writes, or no longer does."""

_pack: Callable[[tuple[bytes, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]

_log = Logger()


class ValkeyUnavailable(Exception):
    """
    The server does not reply. Whether it executed the command is unknown.

    @ivar isUnknown: Whether the command was sent.
    """

    def __init__(self, reason: str, isUnknown: bool = False) -> None:
        super().__init__(reason)
        self.isUnknown = isUnknown


class ValkeyRefused(Exception):
    """
    The server replied with an error.

    @ivar code: The first word of the reply, such as C{OOM}.
    """

    @property
    def code(self) -> str:
        """Return the first word of the reply."""
        return str(self).partition(" ")[0]


@frozen(kw_only=True)
class ValkeyOptions:
    """
    The address of a server.

    @ivar path: The path of a Unix socket; C{None} for TCP.
    @ivar user: The name for C{AUTH}; C{None} for the default user.
    @ivar tls: The TLS options; C{None} without TLS.
    """

    host: str = "localhost"
    port: int = PORT
    path: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    database: int = 0
    tls: ClientTLSOptions | None = None

    @property
    def name(self) -> str:
        """Return the address for messages, without the password."""
        return self.path or f"{self.host}:{self.port}"


def readValkeyURL(url: str) -> ValkeyOptions:
    """
    Parse the URL of a server.

    @param url: C{valkey://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]}; C{valkeys} uses TLS, with an
        optional authority C{?ca=FILE}; C{redis} and C{rediss} are aliases. Or C{unix:PATH[?db=N]}.
    @raise ValueError: If it is invalid. The message contains no part of it, as it may contain a
        password.
    """
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    user = unquote(parts.username) if parts.username else None
    password = None if parts.password is None else unquote(parts.password)
    isUnix = parts.scheme == "unix"
    if not isUnix and parts.scheme not in _SCHEMES:
        raise ValueError(
            "the address begins with valkey://, valkeys://, redis://, rediss:// or unix:"
        )
    authority = query.pop("ca", None)
    database = query.pop("db", None) if isUnix else parts.path.strip("/") or None
    if query or parts.fragment:
        raise ValueError("the address has unknown parts; only ?ca=FILE and ?db=N are supported")
    if database is not None and not (database.isascii() and database.isdigit()):
        raise ValueError("the database in the address is not a number")
    if isUnix:
        if not parts.path:
            raise ValueError("the address has no socket path")
        return ValkeyOptions(
            path=parts.path, user=user, password=password, database=int(database or 0)
        )
    if not parts.hostname:
        raise ValueError("the address has no host")
    isSecure = _SCHEMES[parts.scheme]
    if authority is not None and not isSecure:
        raise ValueError("an address without TLS takes no ca: begin it with valkeys://")
    return ValkeyOptions(
        host=parts.hostname,
        port=parts.port or PORT,
        user=user,
        password=password,
        database=int(database or 0),
        tls=ClientTLSOptions(caFile=authority) if isSecure else None,
    )


@frozen
class Script:
    """
    A Lua script, which the server executes atomically.

    @ivar digest: The digest by which the server caches it.
    """

    text: bytes
    digest: bytes = field(init=False)

    @digest.default
    def _digestOf(self) -> bytes:
        return sha1(self.text, usedforsecurity=False).hexdigest().encode()


_PASSING = ("LOADING", "BUSY", "MASTERDOWN", "READONLY", "OOM", "TRYAGAIN", "MISCONF")
"""Codes of transient errors."""


def checkServer(options: ValkeyOptions, key: bytes) -> None:
    """
    Check that a server can be used, unless it is unavailable. Blocks; for startup.

    @param key: A key that will be used; a script is tested with it.
    @raise ValkeyRefused: If it refuses the password, the database or the script.
    @raise OSError: If its certificate is invalid, or the authority's cannot be read.
    """
    context = None
    if options.tls is not None:
        context = ssl.create_default_context(cafile=options.tls.caFile)
    try:
        connection = _connectBlocking(options, context)
    except ssl.SSLError:
        raise
    except OSError:
        # The server may come back.
        return
    commands: list[tuple[bytes, ...]] = []
    if options.password is not None:
        user = [options.user.encode()] if options.user else []
        commands.append((b"AUTH", *user, options.password.encode()))
    if options.database:
        commands.append((b"SELECT", b"%d" % options.database))
    commands.append((b"EVAL", b"return redis.call('EXISTS', KEYS[1])", b"1", key))
    reader = hiredis.Reader(replyError=ValkeyRefused)
    with connection:
        for words in commands:
            try:
                connection.sendall(_pack(words))
                while (reply := reader.gets()) is False:
                    data = connection.recv(4096)
                    if not data:
                        return
                    reader.feed(data)
            except ssl.SSLError:
                # The server requires a client certificate.
                raise
            except OSError:
                return
            except hiredis.ProtocolError as error:
                raise ValkeyRefused(f"it does not speak RESP: {error!s:.100}") from error
            if isinstance(reply, ValkeyRefused) and reply.code not in _PASSING:
                raise reply


def _connectBlocking(options: ValkeyOptions, context: ssl.SSLContext | None) -> socket.socket:
    if options.path is not None:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(CONNECT_SECONDS)
        connection.connect(options.path)
        return connection
    address = (options.host, options.port)
    connection = socket.create_connection(address, timeout=CONNECT_SECONDS)
    if context is None:
        return connection
    return context.wrap_socket(connection, server_hostname=options.host)


class _Command:
    __slots__ = ("began", "done", "size")

    def __init__(self, began: float, size: int) -> None:
        self.began = began
        self.size = size
        self.done: Deferred[Any] = Deferred()


@implementer(IHandshakeListener)
class ValkeyConnection(Protocol):
    """
    One connection. Methods must run in the reactor thread.

    @ivar isOpen: Whether commands can be sent.
    """

    def __init__(
        self,
        reactor: Any,
        options: ValkeyOptions,
        context: ServerContext | None,
        onLost: Callable[["ValkeyConnection", str], object],
        answerSeconds: float,
    ) -> None:
        """
        @param context: The TLS context, which verifies the server's name; C{None} without TLS.
        @param onLost: Called once, with the reason, if an open connection is lost; not for
            L{close}.
        @param answerSeconds: The timeout of a reply, after which the connection counts as lost.
        """
        self._reactor = reactor
        self._options = options
        self._context = context
        self._onLost = onLost
        self._answerSeconds = answerSeconds
        self._reader = hiredis.Reader(replyError=ValkeyRefused)
        self._commands: deque[_Command] = deque()
        self._bytes = 0
        self._timer: IDelayedCall | None = None
        self._reason: str | None = None
        self.isOpen = False
        self.ready: Deferred[None] = Deferred()

    def run(self, *words: bytes) -> Deferred[Any]:
        """
        Send a command.

        The reply to a cancelled Deferred is dropped; the command is still executed.

        @return: The reply.
        @raise ValkeyRefused: If the reply is an error.
        @raise ValkeyUnavailable: If there is no reply.
        """
        if self._reason is not None:
            return fail(ValkeyUnavailable(self._reason))
        wire: bytes = _pack(words)
        if len(self._commands) >= MAX_WAITING or self._bytes + len(wire) > MAX_BYTES:
            return fail(ValkeyUnavailable("too many commands are waiting for the server"))
        command = _Command(self._reactor.seconds(), len(wire))
        self._bytes += command.size
        self._commands.append(command)
        if self._timer is None:
            self._timer = self._reactor.callLater(self._answerSeconds, self._checkTime)
        assert self.transport is not None
        self.transport.write(wire)
        return command.done

    def close(self) -> None:
        """Close the connection; commands in flight fail."""
        self._end("closed", False)

    def connectionMade(self) -> None:
        """Authenticate, immediately or after the TLS handshake."""
        transport: Any = self.transport
        if self._options.path is None and ITCPTransport.providedBy(transport):
            transport.setTcpNoDelay(True)
        if self._context is None:
            self._greet()

    def handshakeCompleted(self) -> None:
        """Verify the name of the server, then authenticate."""
        assert self._context is not None
        try:
            self._context.verifyName(self.transport.getHandle())  # type: ignore[union-attr]
        except Exception as error:
            # Any error means that this server must not get the password.
            self._end(f"the certificate does not fit: {error!r:.200}", False)
        else:
            self._greet()

    def _greet(self) -> None:
        options = self._options
        if options.password is not None:
            words = (b"AUTH", *([options.user.encode()] if options.user else []))
            self._refuseUnless(self.run(*words, options.password.encode()))
        if options.database:
            self._refuseUnless(self.run(b"SELECT", b"%d" % options.database))
        # A server that is loading its data, or requires a password, does not reply PONG.
        self.run(b"PING").addCallbacks(self._greeted, self._refused)

    def _refuseUnless(self, replied: Deferred[Any]) -> None:
        replied.addErrback(self._refused)

    def _greeted(self, reply: object) -> None:
        if self._reason is None:
            self.isOpen = True
            self.ready.callback(None)

    def _refused(self, failure: Failure) -> None:
        self._end(failure.getErrorMessage(), False)

    def dataReceived(self, data: bytes) -> None:
        """Process replies."""
        reader, commands = self._reader, self._commands
        reader.feed(data)
        try:
            while (reply := reader.gets()) is not False and self._reason is None:
                if not commands:
                    self._end("the server sent an unexpected reply", True)
                    return
                command = commands.popleft()
                self._bytes -= command.size
                if isinstance(reply, ValkeyRefused):
                    if reply.code in _GONE and self.isOpen:
                        self._end(str(reply), True)
                    command.done.errback(reply)
                else:
                    command.done.callback(reply)
        except hiredis.ProtocolError as error:
            self._end(f"the server does not speak RESP: {error!s:.100}", True)
            return
        if reader.len() > MAX_BYTES:
            self._end("a reply is too long", True)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Fail the commands in flight."""
        self._end(reason.getErrorMessage(), True)

    def _checkTime(self) -> None:
        self._timer = None
        if not self._commands:
            return
        age = self._reactor.seconds() - self._commands[0].began
        if age >= self._answerSeconds:
            self._end(f"no reply for {age:.1f} s", True)
        else:
            self._timer = self._reactor.callLater(self._answerSeconds - age, self._checkTime)

    def _end(self, reason: str, isLost: bool) -> None:
        if self._reason is not None:
            return
        self._reason = " ".join(reason.split())
        wasOpen, self.isOpen = self.isOpen, False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.transport is not None:
            self.transport.abortConnection()  # type: ignore[attr-defined]
        commands, self._commands = self._commands, deque()
        if not self.ready.called:
            self.ready.errback(ValkeyUnavailable(self._reason))
        # Before the results, so that a repeated command finds another connection.
        if isLost and wasOpen:
            self._onLost(self, self._reason)
        for command in commands:
            command.done.errback(ValkeyUnavailable(self._reason, True))


class ValkeyClient:
    """
    Keeps one connection open. Methods must run in the reactor thread.

    Without a connection, a command fails immediately, except that it waits for the first attempt to
    connect.
    """

    def __init__(
        self,
        reactor: Any,
        options: ValkeyOptions,
        answerSeconds: float = ANSWER_SECONDS,
        random: Callable[[float, float], float] = uniform,
    ) -> None:
        """
        @param answerSeconds: The timeout of a reply, after which the connection counts as lost.
        @param random: C{random.uniform} or a replacement.
        """
        self._reactor = reactor
        self._options = options
        self._answerSeconds = answerSeconds
        self._random = random
        self._connection: ValkeyConnection | None = None
        self._made: ValkeyConnection | None = None
        self._connecting: Deferred[Any] | None = None
        self._timer: IDelayedCall | None = None
        self._failures = 0
        self._openedAt = 0.0
        self._isClosed = False
        # Commands that wait for the first attempt to connect; None after it.
        self._waiting: list[Deferred[None]] | None = []
        self._failure = "not connected yet"

    @property
    def failure(self) -> str | None:
        """Return the reason for the lack of a connection, or C{None} if there is one."""
        return None if self._connection is not None else self._failure

    def open(self) -> None:
        """Begin to connect. Call it once."""
        self._timer = None
        connecting = self._connecting = Deferred.fromCoroutine(self._connect())
        connecting.addTimeout(CONNECT_SECONDS, self._reactor)
        connecting.addCallbacks(self._connected, self._failed)
        connecting.addErrback(lambda failure: _log.failure("the client failed", failure))

    def close(self) -> None:
        """Close the connection, and do not reconnect."""
        self._isClosed = True
        self._failure = "closed"
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._connecting is not None:
            self._connecting.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        self._release()

    async def run(self, *words: bytes) -> Any:
        """
        Send a command, and return the reply.

        @raise ValkeyRefused: If the reply is an error.
        @raise ValkeyUnavailable: If there is no reply.
        """
        connection = self._connection
        if connection is None:
            connection = await self._first()
        return await connection.run(*words)

    async def evaluate(self, script: Script, key: bytes, *arguments: bytes) -> Any:
        """
        Execute a script, and return its result.

        @param key: The only key that the script uses.
        @raise ValkeyRefused: If the result is an error.
        @raise ValkeyUnavailable: If there is no reply.
        """
        connection = self._connection
        if connection is None:
            connection = await self._first()
        try:
            return await connection.run(b"EVALSHA", script.digest, b"1", key, *arguments)
        except ValkeyRefused as error:
            if error.code != "NOSCRIPT":
                raise
        # The script was not executed; EVAL makes the server cache it.
        return await connection.run(b"EVAL", script.text, b"1", key, *arguments)

    async def _first(self) -> ValkeyConnection:
        """Wait for the first attempt to connect, if it is in progress."""
        if self._waiting is not None:
            if len(self._waiting) >= MAX_WAITING:
                raise ValkeyUnavailable("too many commands are waiting for the server")
            waiting: Deferred[None] = Deferred()
            self._waiting.append(waiting)
            await waiting
        if self._connection is None:
            raise ValkeyUnavailable(self._failure)
        return self._connection

    async def _connect(self) -> ValkeyConnection:
        options = self._options
        endpoint: Any
        if options.path is not None:
            endpoint = UNIXClientEndpoint(self._reactor, options.path, timeout=CONNECT_SECONDS)
        else:
            endpoint = HostnameEndpoint(
                self._reactor, options.host, options.port, timeout=CONNECT_SECONDS
            )
        context = None
        if options.tls is not None:
            context = makeContext(options.tls, options.host)
            endpoint = wrapClientTLS(context, endpoint)

        def make() -> ValkeyConnection:
            made = ValkeyConnection(
                self._reactor, options, context, self._lost, self._answerSeconds
            )
            self._made = made
            return made

        factory = Factory.forProtocol(make)
        factory.noisy = False
        connection: ValkeyConnection = await endpoint.connect(factory)
        await connection.ready
        return connection

    def _connected(self, connection: ValkeyConnection) -> None:
        self._connecting = self._made = None
        if self._isClosed:
            connection.close()
            return
        if self._failures:
            _log.info("{server} is reachable again", server=self._options.name)
        self._openedAt = self._reactor.seconds()
        self._connection = connection
        self._release()

    def _failed(self, failure: Failure) -> None:
        made, self._made = self._made, None
        self._connecting = None
        if made is not None:
            made.ready.addErrback(lambda failure: None)
            made.close()
        if self._isClosed:
            return
        isLate = (
            failure.check(DeferredTimeout, CancelledError, ConnectingCancelledError) is not None
        )
        reason = "it does not respond" if isLate else failure.getErrorMessage()
        self._failure = f"{self._options.name}: {reason}"
        if not self._failures:
            _log.warn("{failure}", failure=self._failure)
        self._retry()
        self._release()

    def _retry(self) -> None:
        seconds = _BACKOFF.seconds(self._failures, self._random)
        self._failures += 1
        self._timer = self._reactor.callLater(seconds, self.open)

    def _lost(self, connection: ValkeyConnection, reason: str) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        self._failure = f"{self._options.name}: {reason}"
        _log.warn("the connection to {failure}", failure=self._failure)
        if self._reactor.seconds() - self._openedAt < STEADY_SECONDS:
            self._retry()
        else:
            # Reconnect immediately: a restarted server may already be back.
            self._failures = 0
            self.open()

    def _release(self) -> None:
        """Resume commands that wait for the first attempt to connect."""
        waiting, self._waiting = self._waiting, None
        for each in waiting or ():
            if not each.called:
                each.callback(None)
