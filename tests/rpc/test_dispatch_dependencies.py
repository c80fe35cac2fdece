"""Dependencies of gRPC handlers of every form."""

from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

from twisted.internet.task import deferLater
from twisted.trial.unittest import SynchronousTestCase

from storagegate import GrpcError, ServiceError, server
from storagegate.rpc import Call, CallContext, Depends, Header
from storagegate.rpc.testing import RPCTestClient
from tests.support.rpcroutes import textService


def currentUser(context: CallContext[str], xTenant: Annotated[int, Header()] = 1) -> str:
    """Return the user of a call."""
    if context.token is None:
        raise ServiceError("UNAUTHENTICATED", "Log in first", 401)
    context.user = f"{context.token} {xTenant} {context.client.userAgent}"
    return context.user


class LoadedTests(SynchronousTestCase):
    """Handlers of a loaded service take the call, and further parameters."""

    def setUp(self) -> None:
        """Make a server and a log."""
        self.log: list[str] = []
        self.server = server.grpc()
        self.client = RPCTestClient(self.server)

    def connection(self) -> Iterator[str]:
        """Give a connection, which has to be closed."""
        self.log.append("open")
        try:
            yield "c"
        except BaseException as error:
            self.log.append(type(error).__name__)
            raise
        finally:
            self.log.append("closed")

    def serve(self, **methods: Any) -> None:
        """Serve methods with their kinds of streaming."""
        kinds = {name: kind for name, (kind, _) in methods.items()}
        handlers = {name: handler for name, (_, handler) in methods.items()}
        self.server.addService(definition=textService("t.T", **kinds), implementation=handlers)

    def test_unary(self) -> None:
        """A unary handler gets them, and its dependencies end after the status was sent."""

        async def get(
            call: Call, user: str = Depends(currentUser), a: str = Depends(self.connection)
        ) -> Any:
            assert call.user is user
            self.log.append("handler")
            return f"{user} {a}"

        self.serve(Get=("none", get))
        metadata = {"authorization": "Bearer ada", "x-tenant": "7"}
        response = self.client.call("t.T/Get", "x", metadata=metadata)
        self.assertEqual(response[:6], "ada 7 ")
        self.client.flush()
        self.assertEqual(self.log, ["open", "handler", "closed"])
        error = self.assertRaises(GrpcError, self.client.call, "t.T/Get", "x")
        self.assertEqual(error.statusName, "UNAUTHENTICATED")
        metadata["x-tenant"] = "x"
        error = self.assertRaises(GrpcError, self.client.call, "t.T/Get", "x", metadata=metadata)
        self.assertEqual(error.statusName, "INVALID_ARGUMENT")

    def test_stream(self) -> None:
        """Those of a stream end with it, and with the error of a call that is cancelled."""

        async def watch(call: Call, a: str = Depends(self.connection)) -> AsyncIterator[Any]:
            for number in range(2):
                yield f"{a}{number}"
                await deferLater(self.client.clock, 1)

        self.serve(Watch=("server", watch))
        call = self.client.start("t.T/Watch", "x")
        self.client.advance(2)
        self.assertEqual(call.responses, ["c0", "c1"])
        self.assertEqual(self.log, ["open", "closed"])
        self.log.clear()
        call = self.client.start("t.T/Watch", "x")
        call.cancel()
        self.client.advance(1)
        self.assertEqual(self.log, ["open", "CancelledError", "closed"])
