"""
The tests of gRPC applications and clients on the engine of C{grpc.aio}.

They run on the native engine where they stand. All of C{tests.wire.rpc} run on this one with
C{STORAGEGATE_GRPC_ENGINE=aio}; here are those that tell the engines apart, and are short.
"""

from typing import Any

from storagegate.rpc import engine
from tests.support.selection import long
from tests.wire.rpc import (
    test_calls,
    test_cancellation,
    test_client,
    test_clientends,
    test_clientlearning,
    test_clienttls,
    test_clientwithserver,
    test_messageoptions,
    test_middleware,
    test_midmessage,
    test_settling,
    test_stopping,
    test_tls,
)


class OnAio:
    """Makes every engine of a test one on C{grpc.aio}."""

    def setUp(self: Any) -> Any:
        """Choose the engine."""
        self.patch(engine, "engineName", lambda: "aio")
        return super().setUp()  # type: ignore[misc]


class CallTests(OnAio, test_calls.CallTests):
    """Calls of all kinds."""


class ErrorTests(OnAio, test_calls.ErrorTests):
    """Calls that fail."""


class CancelTests(OnAio, test_cancellation.CancelTests):
    """The client gives calls up."""


@long("takes a second or more")
class DeadlineTests(OnAio, test_cancellation.DeadlineTests):
    """The client names a deadline."""


class GoneTests(OnAio, test_cancellation.GoneTests):
    """The client goes without a word."""


class KindTests(OnAio, test_client.KindTests):
    """The client's calls of all kinds."""


class MetadataTests(OnAio, test_client.MetadataTests):
    """What goes beside messages."""


class ClientErrorTests(OnAio, test_client.ErrorTests):
    """The client's calls that fail."""


class ClosedTests(OnAio, test_client.ClosedTests):
    """Clients that are closed."""


class ClientCancelTests(OnAio, test_clientends.CancelTests):
    """The client's calls that are given up."""


class ClientDeadlineTests(OnAio, test_clientends.DeadlineTests):
    """The client's calls that run out of time."""


class LearningTests(OnAio, test_clientlearning.LearningTests):
    """Clients that learn the methods, over a stream."""


class ClientTLSTests(OnAio, test_clienttls.TLSTests):
    """Clients that speak TLS."""


class TogetherTests(OnAio, test_clientwithserver.TogetherTests):
    """Client and server on one loop."""


class CompressionTests(OnAio, test_messageoptions.CompressionTests):
    """Messages that are compressed, by their length."""


class LimitTests(OnAio, test_messageoptions.LimitTests):
    """Limits of messages and metadata."""


class DetailTests(OnAio, test_middleware.DetailTests):
    """Details of errors."""


class MidMessageTests(OnAio, test_midmessage.MidMessageTests):
    """Clients that go within a message."""


class SettlingTests(OnAio, test_settling.SettlingTests):
    """Servers that settle before they stop."""


class OrderTests(OnAio, test_stopping.OrderTests):
    """C{listen} and C{stop} again and again."""


class ServerTLSTests(OnAio, test_tls.ClientTests):
    """Servers that speak TLS."""


class ReloadTests(OnAio, test_tls.ReloadTests):
    """Certificates that change."""
