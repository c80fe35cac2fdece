"""
A connection to PostgreSQL that the reactor drives: libpq, through C{psycopg.pq}, in pipeline mode.
No threads.

Each request sends a list of prepared statements and one sync: one transaction and one round trip.
Many transactions may be in flight on one connection; their results arrive in order.

If the connection is lost, the outcome of the transactions in flight is unknown. The outcome is also
unknown if a commit succeeds with the warning that it was not replicated. See
U{https://www.postgresql.org/docs/current/libpq-pipeline-mode.html}.
"""

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

from psycopg import pq
from psycopg.errors import Error
from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IDelayedCall, IReadWriteDescriptor
from twisted.python.failure import Failure
from zope.interface import implementer

from storagegate.storage.cluster.values import Value
from storagegate.storage.errors import CommitUnknown, StoreBusy, StoreError

Step: TypeAlias = "tuple[bytes, Sequence[Value]]"
"""The name of a prepared statement, and its parameters in binary format."""

Rows: TypeAlias = Any
"""The result of a step: a C{psycopg.pq.PGresult} in binary format."""

MAX_WAITING = 4096
"""The most transactions in flight: twice the daemon's limit of concurrent requests."""

ANSWER_SECONDS = 5.0
"""Time without a result after which the server is considered gone."""

_POLL_SECONDS = 0.002

_MOST_LOOK_UPS = 32
"""The most look-ups in one transaction, because the first waits for the last."""

# Error classes and codes after which the server closes the connection.
_CONNECTION = b"08"
_SHUTDOWN = (b"57P01", b"57P02", b"57P03", b"57P04", b"57P05", b"25P03", b"25P04")

UNREPLICATED = b"SyncRepWaitForLSN"
"""
The function of the server that warns of a commit whose wait for its standby was canceled or
terminated. The text of the warning depends on C{lc_messages}.
"""

_BINARY = [[1] * count for count in range(64)]


class StatementRefused(StoreError):
    """
    The server refused a statement and applied nothing of its transaction.

    @ivar state: The SQLSTATE, five characters.
    """

    def __init__(self, state: str, text: str) -> None:
        super().__init__(f"{state}: {text}")
        self.state = state


class ConnectionLost(StoreBusy):
    """The connection is lost. The outcome of transactions in flight is unknown."""


class _Transaction:
    __slots__ = ("began", "done", "error", "results")

    def __init__(self, began: float) -> None:
        self.began = began
        self.results: list[Rows] = []
        self.error: Exception | None = None
        self.done: Deferred[list[Rows]] = Deferred()

    def end(self, warning: str | None) -> None:
        """Fire the Deferred with the outcome."""
        if self.error is not None:
            self.done.errback(self.error)
        elif warning is not None:
            self.done.errback(CommitUnknown(warning))
        else:
            self.done.callback(self.results)

    def lose(self, reason: str) -> None:
        """Fail, because the connection was lost."""
        self.done.errback(ConnectionLost(reason))


class _LookUps(_Transaction):
    """The independent look-ups of one reactor iteration, sent as one transaction."""

    __slots__ = ("_again", "waiting")

    def __init__(self, began: float, again: Callable[[Step], Deferred[list[Rows]]]) -> None:
        super().__init__(began)
        self.waiting: list[tuple[Step, Deferred[Rows]]] = []
        self._again = again

    def end(self, warning: str | None) -> None:
        """
        Fire each look-up with its rows. A refused statement also aborts the later ones, which are
        resent.
        """
        results, waiting = self.results, self.waiting
        for (_, done), rows in zip(waiting, results, strict=False):
            done.callback(rows)
        if self.error is None:
            return
        rest = waiting[len(results) :]
        rest[0][1].errback(self.error)
        for step, done in rest[1:]:
            self._again(step).addCallback(itemgetter(0)).chainDeferred(done)

    def lose(self, reason: str) -> None:
        """Fail each look-up."""
        for _, done in self.waiting:
            done.errback(ConnectionLost(reason))


def ignoreLoss(connection: "Connection", reason: str) -> None:
    """Do nothing."""


def ignoreNotification(channel: str, payload: str) -> None:
    """Do nothing."""


@implementer(IReadWriteDescriptor)
class Connection:
    """
    One connection. Methods: reactor thread.

    @ivar isOpen: Whether statements can be sent.
    @ivar serverVersion: The server's version, such as 150004 for 15.4.
    """

    def __init__(
        self,
        reactor: Any,
        statements: Mapping[bytes, str],
        onLost: Callable[["Connection", str], object] = ignoreLoss,
        onNotification: Callable[[str, str], object] = ignoreNotification,
        answerSeconds: float = ANSWER_SECONDS,
    ) -> None:
        """
        @param reactor: Provides C{IReactorFDSet} and C{IReactorTime}.
        @param statements: Statements by name, prepared when the connection opens.
        @param onLost: Called once, with the reason, if an open connection is lost, but not by
            L{close}.
        @param onNotification: Called with the channel and the payload of each C{NOTIFY}.
        @param answerSeconds: Time without a result after which the connection counts as lost.
        """
        self._reactor = reactor
        self._statements = statements
        self._onLost = onLost
        self._onNotification = onNotification
        self._answerSeconds = answerSeconds
        self._transactions: deque[_Transaction] = deque()
        # The look-ups whose transaction is not complete yet.
        self._lookUps: _LookUps | None = None
        self._isWriting = False
        self._warning: str | None = None
        self._fd = -1
        self._opening: Deferred[None] | None = None
        self._timer: IDelayedCall | None = None
        self._pollTimer: IDelayedCall | None = None
        self._pg: Any = None
        self.isOpen = False
        self.serverVersion = 0

    def open(self, conninfo: str) -> Deferred[None]:
        """
        Connect and prepare the statements. Call once.

        @param conninfo: The conninfo of one server, with its name resolved, because libpq would
            block.
        @raise ConnectionLost: The server cannot be reached or refuses the connection.
        @raise StatementRefused: A statement cannot be prepared.
        """
        opening: Deferred[None] = Deferred(lambda _: self.close())
        self._opening = opening
        try:
            self._pg = pq.PGconn.connect_start(conninfo.encode())
        except Error as error:
            self._refuse(str(error))
            return opening
        self._pg.notice_handler = self._noticed
        self._poll()
        return opening

    @property
    def waiting(self) -> int:
        """The number of transactions in flight."""
        return len(self._transactions)

    def run(self, steps: Sequence[Step], began: float | None = None) -> Deferred[list[Rows]]:
        """
        Run statements as one transaction.

        Cancelling the Deferred drops the result but does not stop the transaction.

        @param began: When the client began to wait, if not now.
        @return: Fires with a result for each statement.
        @raise StatementRefused: The transaction was not applied.
        @raise ConnectionLost: The transaction may have been committed.
        @raise CommitUnknown: The transaction was committed, but may be lost with the server.
        @raise StoreBusy: Too many transactions are in flight; nothing was sent.
        """
        if not self.isOpen:
            return fail(ConnectionLost("the catalog is not connected"))
        if len(self._transactions) >= MAX_WAITING:
            return fail(StoreBusy("too many queries are waiting for the catalog"))
        if self._lookUps is not None:
            self._sendLookUps()
            if not self.isOpen:
                return fail(ConnectionLost("the catalog is not connected"))
        transaction = _Transaction(self._reactor.seconds() if began is None else began)
        self._append(transaction)
        self._send(steps)
        self._endTransaction()
        return transaction.done

    def lookUp(self, step: Step) -> Deferred[Rows]:
        """
        Run one read-only statement.

        All look-ups of one reactor iteration go in one packet and one transaction: sending each
        separately takes twice the time of all its other processing here.

        @return: Fires with the result.
        @raise StatementRefused: This statement was refused.
        @raise ConnectionLost: The connection was lost.
        @raise StoreBusy: Too many transactions are in flight.
        """
        if not self.isOpen:
            return fail(ConnectionLost("the catalog is not connected"))
        if len(self._transactions) >= MAX_WAITING:
            return fail(StoreBusy("too many queries are waiting for the catalog"))
        lookUps = self._lookUps
        if lookUps is None:
            lookUps = self._lookUps = _LookUps(
                self._reactor.seconds(), lambda step: self.run([step])
            )
            self._append(lookUps)
            self._reactor.callLater(0, self._sendLookUps)
        done: Deferred[Rows] = Deferred()
        lookUps.waiting.append((step, done))
        self._send((step,))
        if len(lookUps.waiting) >= _MOST_LOOK_UPS:
            self._sendLookUps()
        return done

    def close(self) -> None:
        """Close the connection. Transactions in flight fail with C{ConnectionLost}."""
        if self._opening is not None:
            self._refuse("closed")
        self._close("closed")

    def fileno(self) -> int:
        """
        Return a duplicate descriptor, because libpq closes its own when the connection breaks.
        """
        return self._fd

    def logPrefix(self) -> str:
        """Return the name for the reactor's log."""
        return "postgresql"

    def connectionLost(self, reason: Failure) -> None:
        """Handle the loss of the descriptor in the reactor."""
        self._lost(reason.getErrorMessage())

    def doRead(self) -> None:
        """Receive results."""
        try:
            self._pg.consume_input()
        except Error as error:
            self._lost(str(error))
            return
        if self._isWriting:
            # libpq does not write more while the server waits for it to read.
            self._flush()
        self._receive()

    def doWrite(self) -> None:
        """Send buffered data."""
        self._flush()

    def _poll(self) -> None:
        # libpq may change its socket between addresses while it connects.
        self._pollTimer = None
        if self._opening is None:
            return
        try:
            status = self._pg.connect_poll()
        except Error as error:
            self._refuse(str(error))
            return
        if status == pq.PollingStatus.OK:
            self._connected()
        elif status == pq.PollingStatus.FAILED:
            self._refuse(self._pg.get_error_message())
        else:
            self._pollTimer = self._reactor.callLater(_POLL_SECONDS, self._poll)

    def _connected(self) -> None:
        self._pg.nonblocking = 1
        self._pg.enter_pipeline_mode()
        self.serverVersion = self._pg.server_version
        self.isOpen = True
        self._fd = os.dup(self._pg.socket)
        self._reactor.addReader(self)
        transaction = _Transaction(self._reactor.seconds())

        def prepared(result: Any) -> None:
            opening, self._opening = self._opening, None
            if opening is None:
                return
            if isinstance(result, Failure):
                self._close("refused")
                opening.errback(result)
            else:
                opening.callback(None)

        transaction.done.addBoth(prepared)
        self._append(transaction)
        try:
            for name, sql in self._statements.items():
                self._pg.send_prepare(name, sql.encode())
        except Error as error:
            self._lost(str(error))
        self._endTransaction()

    def _refuse(self, reason: str) -> None:
        opening, self._opening = self._opening, None
        if self._pollTimer is not None:
            self._pollTimer.cancel()
            self._pollTimer = None
        if self._pg is not None and not self.isOpen:
            self._pg.finish()
        if opening is not None and not opening.called:
            opening.errback(ConnectionLost(_oneLine(reason)))

    def _append(self, transaction: _Transaction) -> None:
        self._transactions.append(transaction)
        if self._timer is None:
            self._timer = self._reactor.callLater(self._answerSeconds, self._checkTime)

    def _sendLookUps(self) -> None:
        if self._lookUps is not None and self.isOpen:
            self._lookUps = None
            self._endTransaction()

    def _send(self, steps: Sequence[Step]) -> None:
        """Send the statements of the last transaction."""
        try:
            for name, values in steps:
                # Older versions of psycopg accept only a list.
                self._pg.send_query_prepared(name, list(values), _BINARY[len(values)], 1)
        except Error as error:
            # While it sends, libpq can find the connection closed before the reactor does.
            self._lost(str(error))

    def _endTransaction(self) -> None:
        if not self.isOpen:
            return
        try:
            self._pg.pipeline_sync()
        except Error as error:
            self._lost(str(error))
            return
        self._flush()

    def _flush(self) -> None:
        try:
            isMore = bool(self._pg.flush())
        except Error as error:
            self._lost(str(error))
            return
        if isMore != self._isWriting:
            self._isWriting = isMore
            (self._reactor.addWriter if isMore else self._reactor.removeWriter)(self)

    def _receive(self) -> None:
        pg = self._pg
        while self._transactions and self.isOpen and not pg.is_busy():
            result = pg.get_result()
            # L{None} separates two results.
            if result is not None:
                self._take(result)
        if not self.isOpen:
            return
        while (notification := pg.notifies()) is not None:
            self._onNotification(notification.relname.decode(), notification.extra.decode())
        if pg.status == pq.ConnStatus.BAD:
            self._lost("the server closed the connection")

    def _take(self, result: Rows) -> None:
        status = result.status
        transaction = self._transactions[0]
        if status == pq.ExecStatus.TUPLES_OK or status == pq.ExecStatus.COMMAND_OK:
            transaction.results.append(result)
        elif status == pq.ExecStatus.PIPELINE_SYNC:
            self._transactions.popleft()
            warning, self._warning = self._warning, None
            transaction.end(warning)
        elif status == pq.ExecStatus.FATAL_ERROR:
            state = result.error_field(pq.DiagnosticField.SQLSTATE)
            text = _oneLine(result.get_error_message())
            if state is None or state[:2] == _CONNECTION or state in _SHUTDOWN:
                self._lost(text)
            elif transaction.error is None:
                transaction.error = StatementRefused(state.decode(), text)

    def _noticed(self, notice: Rows) -> None:
        if notice.error_field(pq.DiagnosticField.SOURCE_FUNCTION) == UNREPLICATED:
            text = notice.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b""
            self._warning = text.decode("utf-8", "replace")

    def _checkTime(self) -> None:
        self._timer = None
        if not self._transactions:
            return
        age = self._reactor.seconds() - self._transactions[0].began
        if age >= self._answerSeconds:
            self._lost(f"no response for {age:.0f} s")
        else:
            rest = self._answerSeconds - age
            self._timer = self._reactor.callLater(rest, self._checkTime)

    def _lost(self, reason: str) -> None:
        self._close(_oneLine(reason), isLost=self._opening is None)

    def _close(self, reason: str, isLost: bool = False) -> None:
        if not self.isOpen:
            return
        self.isOpen = False
        self._reactor.removeReader(self)
        if self._isWriting:
            self._isWriting = False
            self._reactor.removeWriter(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        os.close(self._fd)
        self._fd = -1
        self._pg.finish()
        transactions, self._transactions = self._transactions, deque()
        self._lookUps = None
        # Called before the failures, so that a retried query finds another connection.
        if isLost:
            self._onLost(self, reason)
        for transaction in transactions:
            transaction.lose(reason)


def _oneLine(text: str) -> str:
    return " ".join(text.split())
