"""gRPC on the port of HTTP of a gateway, beside its own."""

from typing import Any

from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from storagegate.gateway.gateway import createProtocolGateway
from tests.support.h2client import H2Client


class OnHTTPTests(TestCase):
    """gRPC on the port of HTTP, beside its own."""

    timeout = 60

    async def test_onHTTP(self) -> None:
        """Calls come on both ports; requests of HTTP and other content types stay what they are."""
        options: tuple[dict[str, Any], ...] = (
            {"onHTTP": True},
            {"onHTTP": True, "engine": "native"},
            {},
        )
        for grpcOptions in options:
            gateway = createProtocolGateway(
                protocols=["http", "grpc"], port=0, grpc={"port": 0, **grpcOptions}
            )
            gateway.addService("Probe", {"methods": {"echo": lambda request: request}})
            ports = await gateway.listen()
            self.addCleanup(gateway.stop, 0)
            numbers = [ports[name].getHost().port for name in ("grpc", "http")]

            def call(numbers: list[int] = numbers) -> list[int | None]:
                found = []
                for number in numbers:
                    with H2Client(number) as client:
                        found.append(client.call("/Probe/echo", b"").status)
                return found

            expected = [0, 0 if grpcOptions else None]
            self.assertEqual(await deferToThread(call), expected)
            await gateway.stop(0)
