"""A call of the client's, with no wire below it."""

from collections.abc import Callable
from typing import Any

from google.protobuf.struct_pb2 import Struct
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from storagegate.core.errors import GrpcError
from storagegate.rpc.clientcall import ClientCall
from storagegate.rpc.codec import codecOf
from storagegate.rpc.interfaces import CallOptions, IClientEngine, UnaryResult
from storagegate.rpc.protos import RPCMethod

_CODEC = codecOf(Struct)


@implementer(IClientEngine)
class _Engine:
    """Keeps the exchange that is made until the test says how it went."""

    def __init__(self) -> None:
        self.isClosed = False
        self.counted = {"/p.S/Do"}
        self.cancelled = 0
        self.made: list[Callable[[UnaryResult], object]] = []

    def call(
        self,
        path: str,
        options: CallOptions,
        request: bytes | None = None,
    ) -> Any:
        """There are no streams here."""
        raise NotImplementedError

    def exchange(
        self,
        path: str,
        options: CallOptions,
        request: bytes,
        done: Callable[[UnaryResult], object],
    ) -> Callable[[], None]:
        """Take a call."""
        self.made.append(done)
        return self.cancel

    def cancel(self) -> None:
        """Count."""
        self.cancelled += 1

    def close(self) -> Deferred[None]:
        """Nothing is to be closed."""
        return Deferred()


class ClientCallTests(SynchronousTestCase):
    """How a call ends."""

    def setUp(self) -> None:
        """Begin one."""
        self.engine = _Engine()
        self.call = ClientCall(self.engine, "do", {"a": 1}, CallOptions(), Clock())
        self.call.begin(RPCMethod("Do", "/p.S/Do", "none", _CODEC, _CODEC))

    def end(self, status: int = 0, response: bytes | None = b"", text: str = "") -> None:
        """Say how the exchange went."""
        self.engine.made[0](UnaryResult(status, text, response, (), (("x-end", "1"),)))

    def error(self) -> GrpcError:
        """Give what the call failed with."""
        error = self.failureResultOf(self.call.deferred(), GrpcError).value
        assert isinstance(error, GrpcError)
        return error

    def test_fake(self) -> None:
        """The engine here is one as the interface has it."""
        self.assertTrue(verifyObject(IClientEngine, self.engine))

    def test_good(self) -> None:
        """The response is decoded, the trailers are there."""
        waiting = self.call.deferred()
        self.assertNoResult(waiting)
        self.end(0, _CODEC.encode({"b": 2}))
        self.assertEqual(self.successResultOf(waiting), {"b": 2})
        trailers = self.successResultOf(self.call.trailers())
        self.assertEqual(trailers.getMap(), {"x-end": "1"})

    def test_counted(self) -> None:
        """Responses are counted again after an end without a response, not after other errors."""
        self.end(5, None, "no")
        self.assertEqual(self.engine.counted, {"/p.S/Do"})
        for status in (1, 4, 14):
            self.setUp()
            self.end(status, None, "gone")
            self.assertEqual(self.engine.counted, set())

    def test_unreadable(self) -> None:
        """A response that is no message is INTERNAL."""
        self.end(0, b"\xff")
        self.assertEqual(self.error().statusName, "INTERNAL")

    def test_unknownStatus(self) -> None:
        """A status that there is not is UNKNOWN, and its number is told."""
        self.end(99, None, "odd")
        self.assertEqual(self.error().statusName, "UNKNOWN")
        self.assertIn("99", self.error().message)

    def test_cancelledLate(self) -> None:
        """A call that was given up has no response, also if that was on its way already."""
        self.call.cancel()
        self.assertEqual(self.engine.cancelled, 1)
        self.end(0, _CODEC.encode({"b": 2}))
        self.assertEqual(self.error().statusName, "CANCELLED")

    def test_cancelledAfterwards(self) -> None:
        """What is given up after its end stays as it was, and the wire is not asked."""
        self.end(0, _CODEC.encode({}))
        self.call.cancel()
        self.assertEqual(self.successResultOf(self.call.deferred()), {})
        self.assertEqual(self.engine.cancelled, 0)

    def test_nobodyWaits(self) -> None:
        """An error that is not awaited is not logged."""
        self.end(13, None, "bad")
        del self.call
        self.assertEqual(self.flushLoggedErrors(), [])
