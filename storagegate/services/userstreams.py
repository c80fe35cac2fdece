"""
The streams of the UserService that the table of users knows nothing of: chats, uploads and data.
"""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from twisted.internet.defer import Deferred

from storagegate.services.emails import isEmail
from storagegate.services.mailboxes import Bus, Mailbox, Topics
from storagegate.services.reading import invalid
from storagegate.services.userrecords import Moments, isoTime
from storagegate.services.uservalidation import readMessage, readRecords

SYSTEM = "system"
"""Who says the welcome; nobody else may take the name."""

WELCOME = "Welcome to the chat"

_RECORDS = 10_000
"""Records of a chunk: they are looked at in one go, in some hundredths of a second."""

# The one topic there is.
_ROOM = "room"


class Chats:
    """
    One room for both chats: what anybody says in one of them, everybody hears.

    Calls of all processes on one bus are in it. A call that ends its requests leaves when it has
    been given what was said until then; one that does not read is ended (L{Mailbox}), and one that
    says much is read from as fast as it reads itself.
    """

    def __init__(self, moments: Moments, newId: Callable[[], str], bus: Bus | None = None) -> None:
        self._moments = moments
        self._newId = newId
        self._topics = Topics(bus, "users.chats")

    def __len__(self) -> int:
        return len(self._topics)

    async def chatWithUsers(
        self, requests: AsyncIterable[Any], context: Any
    ) -> AsyncIterator[dict[str, Any]]:
        """Relay messages; those that name a time keep it."""
        with self._joined(requests, keepTime=True) as box:
            while (said := await box.get()) is not None:
                yield {name: said[name] for name in ("userId", "message", "timestamp")}

    async def chat(
        self, requests: AsyncIterable[Any], context: Any
    ) -> AsyncIterator[dict[str, Any]]:
        """Say welcome, then relay messages, each with an id."""
        with self._joined(requests, keepTime=False) as box:
            yield self._said({"userId": SYSTEM, "message": WELCOME})
            while (said := await box.get()) is not None:
                yield said

    @contextmanager
    def _joined(self, requests: AsyncIterable[Any], keepTime: bool) -> Iterator[Mailbox]:
        """Be in the room: what the requests say is heard there until the end."""
        box = self._topics.join(_ROOM)
        listening = Deferred.fromCoroutine(self._listen(requests, keepTime, box))
        listening.addCallbacks(box.end, lambda failure: box.end(failure.value))
        try:
            yield box
        finally:
            self._topics.leave(_ROOM, box)
            listening.cancel()

    async def _listen(self, requests: AsyncIterable[Any], keepTime: bool, box: Mailbox) -> None:
        async for request in requests:
            message = readMessage(request)
            if message["userId"].lower() == SYSTEM:
                raise invalid("userId", "is a name that nobody can have")
            if not keepTime:
                message.pop("timestamp", None)
            self._topics.tell(_ROOM, (self._said(message),))
            await box.untilRead()
            # Who hears itself may leave for it, before there is anything to cancel.
            if box.isOver:
                return

    def _said(self, message: Mapping[str, str]) -> dict[str, str]:
        return {"timestamp": isoTime(self._moments()), "id": self._newId(), **message}


async def uploadUserData(requests: AsyncIterable[Any], context: Any) -> dict[str, Any]:
    """
    Count records, and those among them that have no valid email.

    The records are checked, not kept: they have no ids, and only C{CreateMultipleUsers} says what
    becomes of each.
    """
    total = errors = 0
    async for request in requests:
        records = readRecords(request, _RECORDS)
        total += len(records)
        errors += sum(not _isRecord(record) for record in records)
    processed = total - errors
    return {
        "totalRecords": total,
        "processedRecords": processed,
        "errorCount": errors,
        "successRate": processed / total if total else 0.0,
    }


async def streamData(requests: AsyncIterable[Any], context: Any) -> AsyncIterator[dict[str, Any]]:
    """
    Give back each input without its empty values, if anything is left of it; then a summary.

    An item is C{{"type": "result", "index", "data"}} with the number of the input from 0 on, the
    summary C{{"type": "summary", "total", "processed", "skipped"}}.
    """
    total = processed = 0
    async for request in requests:
        if not isinstance(request, Mapping):
            raise invalid("", "is an object")
        data = {name: value for name, value in request.items() if not _isEmpty(value)}
        if data:
            processed += 1
            yield {"type": "result", "index": total, "data": data}
        total += 1
    yield {"type": "summary", "total": total, "processed": processed, "skipped": total - processed}


def _isRecord(record: Any) -> bool:
    return isinstance(record, Mapping) and isEmail(record.get("email"))


def _isEmpty(value: Any) -> bool:
    # A number is a value, 0 as well.
    return value is None or (isinstance(value, str | bytes | list | tuple | Mapping) and not value)
