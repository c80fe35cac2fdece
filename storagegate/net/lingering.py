"""The orderly close of a connection on which the client may still be sending."""

from typing import Any


class LingeringClose:
    """
    A close that waits until everything is sent, and then for the client to close.

    Closing at once would reset a connection on which the client is still sending, and the client
    could lose the last responses. Its input is therefore discarded for a while.
    """

    __slots__ = ("_client", "_deadline", "_discardable", "_sent", "_sentTime", "_stallSeconds")

    def __init__(
        self,
        client: Any,
        now: float,
        lingerSeconds: float,
        stallSeconds: float,
        discardable: int,
    ) -> None:
        """
        Begin to close.

        @param client: A L{ChannelTransport<storagegate.net.http.channel.ChannelTransport>}.
        @param now: The time in seconds.
        @param lingerSeconds: Time for the client to close; longer while output is still sent.
        @param stallSeconds: Time in which a client that reads nothing is dropped.
        @param discardable: How many bytes are read and discarded.
        """
        self._client = client
        self._deadline = now + lingerSeconds
        self._stallSeconds = stallSeconds
        self._discardable = discardable
        self._sent = -1
        self._sentTime = now
        client.close(True)

    def discard(self, size: int) -> None:
        """Discard received bytes, and stop reading at a limit."""
        self._discardable -= size
        if self._discardable < 0:
            # The client's send now blocks, so it has time to read what was sent.
            self._client.setReading(False)

    def check(self, now: float) -> None:
        """Enforce the timeouts. Called about once a second."""
        client = self._client
        if client.hasUnsent():
            sent = client.sentBytes()
            if sent != self._sent:
                self._sent = sent
                self._sentTime = now
            elif now - self._sentTime >= self._stallSeconds:
                client.transport.abortConnection()
        elif now >= self._deadline:
            # What the kernel still has arrives, unlike after an abort.
            client.closeNow()
