"""
Notifications of the service manager: systemd's C{sd_notify}, over the socket in C{NOTIFY_SOCKET}.

A message is a datagram of lines C{NAME=VALUE}::

    READY=1                         requests are served, or a reload is done
    RELOADING=1  MONOTONIC_USEC=N   a reload has begun at this time of the monotonic clock
    STOPPING=1                      no new requests are accepted
    EXTEND_TIMEOUT_USEC=N           the start may take this much longer from now on
    STATUS=TEXT                     the status line of C{systemctl status}
    WATCHDOG=1                      the reactor runs

The reactor sends C{WATCHDOG=1} at half of C{WATCHDOG_USEC}, so that a daemon with a blocked reactor
is restarted. Without the variables no messages are sent.
"""

import os
import socket
import time
from collections import deque
from collections.abc import MutableMapping
from typing import Any

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from storagegate.core.options import parseDecimal
from storagegate.net.process import oneLine

_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")

# A manager that has not read this many messages has stopped reading.
_WAITING = 16

_REPEATED = ("STATUS=", "WATCHDOG=")
"""Prefixes of messages of which only the latest matters."""

_AGAIN_SECONDS = 0.1

_START_SECONDS = 60.0
"""The longest start, not including the time that it waits."""

# One line of a terminal shows fewer characters.
_STATUS_CHARACTERS = 1000

# A week: longer than any useful watchdog.
_MAXIMUM_WATCHDOG_USEC = 7 * 24 * 3600 * 1_000_000

_MAXIMUM_PID = 1 << 22


class Notifier:
    """
    Sends the notifications of one process. Must be used in the reactor thread; no method blocks
    or raises.
    """

    _log = Logger()

    def __init__(self, reactor: Any, environment: MutableMapping[str, str]) -> None:
        """
        @param reactor: Provides C{IReactorTime}.
        @param environment: The environment variables of the process. The notification variables are
            removed, so that child processes send no messages.
        """
        address, usec, pid = (environment.pop(name, "") for name in _VARIABLES)
        self._reactor = reactor
        self._address = _addressOf(address)
        self._watchdogSeconds = _number(usec, _MAXIMUM_WATCHDOG_USEC) / 2_000_000
        self._watchedPID = _number(pid, _MAXIMUM_PID)
        self._socket: socket.socket | None = None
        self._waiting: deque[bytes] = deque(maxlen=_WAITING)
        self._retry: IDelayedCall | None = None
        self._beat: IDelayedCall | None = None
        self._complained = False

    def ready(self, status: str) -> None:
        """
        Report that requests are served, for the first time or after L{reloading}.

        @param status: The listeners in one line.
        """
        self._send("READY=1", _statusLine(status))
        # A watchdog may be set for the process that has forked this one.
        isWatched = self._address and self._watchdogSeconds and self._watchedPID in (0, os.getpid())
        if self._beat is None and isWatched:
            self._beatOnce()

    def starting(self, status: str, seconds: float) -> None:
        """
        Report that the start takes longer.

        @param status: The reason, in one line.
        @param seconds: The expected wait; the rest of the start gets additional time.
        """
        usec = int((seconds + _START_SECONDS) * 1_000_000)
        self._send(_statusLine(status), f"EXTEND_TIMEOUT_USEC={usec}")

    def reloading(self) -> None:
        """Report that a reload has begun; L{ready} must follow, even if the reload fails."""
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._send("RELOADING=1", f"MONOTONIC_USEC={now}")

    def status(self, text: str) -> None:
        """Report the status in one line."""
        self._send(_statusLine(text))

    def stopping(self, status: str) -> None:
        """Report that the process stops, with a status in one line."""
        self._send("STOPPING=1", _statusLine(status))

    def close(self) -> None:
        """Stop the notifications."""
        for call in (self._retry, self._beat):
            if call is not None and call.active():
                call.cancel()
        self._retry = self._beat = None
        self._address = None
        self._waiting.clear()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _beatOnce(self) -> None:
        self._beat = self._reactor.callLater(self._watchdogSeconds, self._beatOnce)
        self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> None:
        if self._address is None:
            return
        message = "\n".join(lines)
        for begin in _REPEATED:
            if message.startswith(begin):
                # These must not displace messages that are sent once, such as READY.
                kept = [each for each in self._waiting if not each.startswith(begin.encode())]
                self._waiting = deque(kept, _WAITING)
        self._waiting.append(message.encode("utf-8", "backslashreplace"))
        if self._retry is None:
            self._flush()

    def _flush(self) -> None:
        """Send the waiting messages in order; retry later if the manager's queue is full."""
        self._retry = None
        try:
            if self._socket is None:
                kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
                self._socket = socket.socket(socket.AF_UNIX, kind)
            while self._waiting:
                self._socket.sendto(self._waiting[0], self._address or "")
                self._waiting.popleft()
        except BlockingIOError:
            self._retry = self._reactor.callLater(_AGAIN_SECONDS, self._flush)
        except OSError as error:
            # The socket may work again for the next message, in particular the watchdog's.
            self._waiting.clear()
            if not self._complained:
                self._complained = True
                reason = error.strerror or error
                self._log.warn("cannot notify the service manager: {reason}", reason=reason)


def _addressOf(text: str) -> str | None:
    """Return the address of a socket; C{None} if it is neither a path nor an abstract name."""
    if len(text) < 2 or text[0] not in "/@":
        return None
    return f"\0{text[1:]}" if text[0] == "@" else text


def _number(text: str, maximum: int) -> int:
    """Parse a variable; 0 if it is absent or not a number."""
    try:
        return parseDecimal(text, maximum)
    except ValueError:
        return 0


def _statusLine(text: str) -> str:
    return f"STATUS={oneLine(text)[:_STATUS_CHARACTERS]}"
