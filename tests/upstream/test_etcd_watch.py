"""Where a watch of etcd goes on."""

from base64 import b64encode
from collections.abc import Callable
from typing import Any

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.upstream.etcd import EtcdWatch
from storagegate.upstream.options import EtcdOptions


class Source:
    """
    A cluster that sends lines written by the test.

    @ivar lines: The lines of each watch.
    @ivar revisions: The revisions from which it was asked to watch.
    """

    def __init__(self, *lines: list[Any]) -> None:
        self.lines = list(lines)
        self.revisions: list[int] = []

    async def call(self, path: str, message: Any, kind: type[Any]) -> Any:
        """Have no keys, at revision 1."""
        return msgspec.convert({"header": {"cluster_id": 1, "revision": 1}}, kind)

    async def follow(
        self, path: str, message: Any, onLine: Callable[[bytes], None], maxSeconds: float
    ) -> None:
        """Send the lines, and end."""
        self.revisions.append(int(message["create_request"]["start_revision"]))
        for line in self.lines.pop(0):
            onLine(msgspec.json.encode({"result": line}))


def put(revision: int) -> dict[str, Any]:
    """Write the event of an instance whose port is the revision."""
    value = b64encode(b'{"host": "10.0.0.1", "port": %d}' % revision).decode()
    key = b64encode(b"p/A/one").decode()
    return {"kv": {"key": key, "value": value, "mod_revision": str(revision)}}


class RevisionTests(SynchronousTestCase):
    """The revisions of a watch."""

    def test_cutBatch(self) -> None:
        """
        A stream that ends between two batches goes on behind its last event: the header has the
        revision of the store, which is that of a later event.
        """
        header = {"cluster_id": "1", "revision": "9"}
        source = Source(
            [{"header": header, "created": True}, {"header": header, "events": [put(2), put(4)]}],
            [{"header": header, "created": True}, {"header": header, "events": [put(9)]}],
            [{"header": header, "created": True}, {"header": {**header, "revision": "12"}}],
            [{"header": {**header, "revision": "12"}, "created": True}],
        )
        told: list[int] = []
        watch = EtcdWatch(
            Clock(),
            EtcdOptions(),
            "A",
            lambda instances, problem: told.extend(each.port for each in instances),
        )
        watch._api = source  # type: ignore[assignment]
        for _ in range(5):
            self.successResultOf(Deferred.fromCoroutine(watch.step()))
        self.assertEqual(source.revisions, [2, 5, 10, 13])
        self.assertEqual(told, [4, 9])
