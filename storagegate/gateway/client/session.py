"""
The calls of one connection as messages, without input or output.

A session turns calls into messages, and assigns the server's replies to calls::

    id, message = session.begin(content, receive)       a REQUEST
    session.item(id, data), session.itemsEnd(id)        CLIENT_ITEM, CLIENT_END
    session.cancel(id)                                  CANCEL
    session.receive(reply)                              calls receive(reply) of its call
    session.lost(makeError)                             ends all calls

Its owner encodes the messages, sends them and decodes replies; see
L{storagegate.gateway.client.formats}.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any

from attrs import define, frozen

from storagegate.gateway.client.formats import Reply
from storagegate.gateway.messages.frames import (
    CANCEL,
    CLIENT_END,
    CLIENT_ITEM,
    END,
    ERROR,
    REQUEST,
    RESPONSE,
)
from storagegate.gateway.messages.interfaces import MessageId

LAST = frozenset({RESPONSE, END, ERROR})
"""The types of replies that end a call."""

Receive = Callable[[Reply], object]


@frozen
class Message:
    """
    A message to the server.

    @ivar type: The type of its frame.
    """

    type: int
    content: dict[str, Any]


@define
class _SessionCall:
    receive: Receive
    items: int = 0


class ClientSession:
    """The calls of one connection."""

    def __init__(self, ids: Iterator[MessageId] | None = None, last: frozenset[int] = LAST) -> None:
        """
        @param ids: The ids of calls; C{None} counts from 1.
        @param last: The types of replies after which no other reply follows.
        """
        self._ids: Iterator[MessageId] = count(1) if ids is None else ids
        self._last = last
        self._calls: dict[MessageId, _SessionCall] = {}

    @property
    def active(self) -> int:
        """Return the number of calls that have not ended."""
        return len(self._calls)

    def begin(self, content: Mapping[str, Any], receive: Receive) -> tuple[MessageId, Message]:
        """
        Begin a call.

        @param content: The request without its id: C{service}, C{method}, and perhaps C{data},
            C{auth}, C{deadlineMs}, C{traceparent} and C{tracestate}.
        @param receive: Called with each reply to the call.
        @return: The id of the call, and its first message.
        """
        id = next(self._ids)
        self._calls[id] = _SessionCall(receive)
        return id, Message(REQUEST, {"id": id, **content})

    def item(self, id: MessageId, data: Any) -> Message | None:
        """Return the message of an item of a stream; C{None} if the call has ended."""
        call = self._calls.get(id)
        if call is None:
            return None
        seq, call.items = call.items, call.items + 1
        return Message(CLIENT_ITEM, {"id": id, "seq": seq, "data": data})

    def itemsEnd(self, id: MessageId) -> Message | None:
        """Return the message of the end of a stream; C{None} if the call has ended."""
        call = self._calls.get(id)
        return None if call is None else Message(CLIENT_END, {"id": id, "seq": call.items})

    def cancel(self, id: MessageId) -> Message | None:
        """
        Cancel a call; later replies to it are dropped.

        @return: The message; C{None} if the call has ended.
        """
        found = self._calls.pop(id, None)
        return None if found is None else Message(CANCEL, {"id": id})

    def receive(self, reply: Reply) -> bool:
        """
        Pass a reply to its call.

        @return: Whether the reply belongs to a call.
        """
        call = self._calls.get(reply.id)
        if call is None:
            return False
        if reply.type in self._last:
            del self._calls[reply.id]
        call.receive(reply)
        return True

    def receiveOnly(self, reply: Reply) -> bool:
        """
        Pass a reply without an id to the only call, and end the call.

        @return: Whether there is exactly one call.
        """
        if len(self._calls) != 1:
            return False
        [id] = self._calls
        type = reply.type if reply.type in LAST else RESPONSE
        return self.receive(Reply(type, id, reply.value, reply.size))

    def abandon(self, makeError: Callable[[], Exception]) -> list[Message]:
        """
        End all calls with an error, see L{lost}.

        @return: The messages that cancel them.
        """
        messages = [Message(CANCEL, {"id": id}) for id in self._calls]
        self.lost(makeError)
        return messages

    def lost(self, makeError: Callable[[], Exception]) -> None:
        """End all calls with an error, as the C{value} of a reply of type C{ERROR}."""
        for id in list(self._calls):
            self.receive(Reply(ERROR, id, makeError()))
