"""The context of a call."""

from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.context import ClientInfo, RequestContext, Tracing
from storagegate.core.invoker import CallCredentials


class ContextTests(SynchronousTestCase):
    """What handlers are told."""

    def make(self) -> RequestContext:
        """Make a context with nothing in it that could be left out."""
        client = ClientInfo("c1", "192.0.2.7", 5000)
        return RequestContext("grpc", "Echo", "echo", client, Tracing("0" * 32))

    def test_defaults(self) -> None:
        """Unknown attributes are empty: no user, no header, no span."""
        context = self.make()
        self.assertEqual((context.client.userAgent, context.client.version), (None, None))
        self.assertEqual((context.headers, context.metadata), ({}, {}))
        self.assertIsNone(context.authentication)
        self.assertEqual((context.tracing.spanId, context.tracing.sampled), (None, False))

    def test_apart(self) -> None:
        """What one call is given, no other one has."""
        one, other = self.make(), self.make()
        one.metadata["deadline"] = 1.0
        self.assertEqual(other.metadata, {})

    def test_known(self) -> None:
        """The user is set after authentication; the client stays."""
        context = self.make()
        context.authentication = {"sub": "1"}
        self.assertEqual(context.authentication, {"sub": "1"})
        for value, name in ((context.client, "address"), (context.tracing, "traceId")):
            self.assertRaises(AttributeError, setattr, value, name, "x")

    def test_shown(self) -> None:
        """A context in a log shows what it is, and no secret."""
        context = self.make()
        context.credentials = CallCredentials("secret")
        self.assertIn("method='echo'", repr(context))
        self.assertNotIn("secret", repr(context))

    def test_noOther(self) -> None:
        """A misspelt attribute is an error, not a new one."""
        self.assertRaises(AttributeError, setattr, self.make(), "authenticated", True)
