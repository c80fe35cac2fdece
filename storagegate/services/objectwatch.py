"""
Who watches which bucket.

The workers of a daemon with several tell each other, too. What one commits is told in order; what
two commit at one time may be told in either order.
"""

from collections.abc import Callable
from typing import Any

from storagegate.services.mailboxes import Mailbox, Topics
from storagegate.services.objectshapes import rowShape
from storagegate.storage.records import ObjectChange
from storagegate.storage.store import ObjectStore


class Watches:
    """The watches of one store. Reactor thread."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._topics = Topics()

    def __len__(self) -> int:
        return len(self._topics)

    def join(self, bucket: str, prefix: str) -> Mailbox:
        """
        Watch the objects of a bucket whose keys begin with a prefix, from now on.

        @return: Gives C{{"event", "object"}}; ends where the bucket does. It has to L{leave}.
        """
        if not self._topics:
            self._store.observers.append(self._changed)
        wants: Callable[[Any], bool] | None = None
        if prefix:

            def wants(change: Any) -> bool:
                key: str = change["object"]["key"]
                return key.startswith(prefix)

        return self._topics.join(bucket, wants)

    def leave(self, bucket: str, box: Mailbox) -> None:
        """Watch no more."""
        self._topics.leave(bucket, box)
        if not self._topics:
            self._store.observers.remove(self._changed)

    def _changed(self, change: ObjectChange) -> None:
        if change.key is None:
            self._topics.close(change.bucket)
            return
        # What waits for a slow reader has no bytes of objects.
        if change.record is not None:
            told = {"event": "created", "object": rowShape(change.record)}
        else:
            told = {"event": "removed", "object": {"key": change.key.decode()}}
        self._topics.tell(change.bucket, (told,))
