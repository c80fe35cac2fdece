"""Bodies that arrive while the session of their request is checked."""

from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.console.call import Principal
from storagegate.console.calls import _Answers
from storagegate.console.objects import receive
from storagegate.core.errors import ServiceError
from storagegate.objects.accounts import AccountKey, Identity
from storagegate.objects.checksums import DEFAULT_ALGORITHM
from storagegate.storage.errors import StoreBusy


class _Body:
    """A body of which nothing has arrived; a failure ends it."""

    complete = False

    def __init__(self) -> None:
        self.next: Deferred[bytes] = Deferred()

    def readAvailable(self) -> None:
        """Return nothing."""

    def __aiter__(self) -> "_Body":
        return self

    async def __anext__(self) -> bytes:
        return await self.next

    def fail(self, error: BaseException) -> None:
        """End the body."""
        self.next.errback(error)


class _Sink:
    """A sink of a blob store."""

    isAborted = False

    def abort(self) -> None:
        """Note it."""
        self.isAborted = True


class CheckTests(SynchronousTestCase):
    """Requests whose session cannot be looked up."""

    def setUp(self) -> None:
        """Have a request of a session."""
        self.clock, self.body, self.sink = Clock(), _Body(), _Sink()
        key = AccountKey(Identity("AK", "root"), "secret")

        async def exists(id: str) -> bool:
            raise StoreBusy("the file is locked")

        console = SimpleNamespace(sessions=SimpleNamespace(exists=exists))
        services = SimpleNamespace(
            accounts=SimpleNamespace(renew=lambda key: key),
            kept={"console": console},
            reactor=self.clock,
            store=SimpleNamespace(blobs=SimpleNamespace(writer=lambda *arguments: self.sink)),
            monitor=None,
            now=self.clock.seconds,
        )
        raw = SimpleNamespace(headers={}, body=self.body)
        self.call: Any = SimpleNamespace(
            services=services,
            who=Principal(key, SimpleNamespace(id="session")),  # type: ignore[arg-type]
            params={"bucket": "b"},
            request=SimpleNamespace(raw=raw, contentLength=None),
            response=SimpleNamespace(header=lambda name, value: None),
        )

    def test_upload(self) -> None:
        """The upload fails with the error of the look-up, and leaves no blob."""
        receiving = Deferred.fromCoroutine(receive(self.call, DEFAULT_ALGORITHM, 10, None))
        self.clock.advance(1)
        self.failureResultOf(receiving, StoreBusy)
        self.assertTrue(self.sink.isAborted)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_gatewayCall(self) -> None:
        """The call of the gateway is cancelled."""
        answers = _Answers(self.call, self.clock, "trace")
        running: Deferred[None] = Deferred()
        running.addErrback(lambda failure: None)
        watching = Deferred.fromCoroutine(answers.watch(self.call, running))
        self.clock.advance(1)
        self.assertIsNone(self.successResultOf(watching))
        self.assertTrue(running.called)
        refusal = answers._refusal
        assert isinstance(refusal, ServiceError)
        self.assertEqual(refusal.code, "UNAVAILABLE")
