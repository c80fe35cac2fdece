"""The gateway behind proxies: whose word on the client's address counts."""

import json
import re
from http.client import HTTPConnection
from typing import Any

import grpc
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase
from websockets.sync.client import connect

from storagegate.gateway.gateway import createProtocolGateway

CLIENT = "198.51.100.7"


def addressOf(text: str) -> str:
    """Find the address in a response of JSON; the whole response if it has none."""
    found = re.search(r'"address": ?"([^"]*)"', text)
    return text if found is None else found[1]


def overHTTP(port: int, forwarded: str) -> str:
    """Call over HTTP, as through a proxy."""
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"X-Forwarded-For": forwarded, "Content-Type": "application/json"}
    connection.request("POST", "/api/Who/ask", b"{}", headers)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return addressOf(text)


def overWebSocket(port: int, forwarded: str) -> str:
    """Call over WebSocket, as through a proxy."""
    headers = {"X-Forwarded-For": forwarded}
    with connect(f"ws://127.0.0.1:{port}/ws", additional_headers=headers) as socket:
        socket.send(json.dumps({"id": "1", "service": "Who", "method": "ask", "data": {}}))
        return addressOf(str(socket.recv(30)))


def overGRPC(port: int, forwarded: str) -> str:
    """Call over gRPC, as through a proxy that adds a value of its own to the client's."""
    first, _, last = forwarded.rpartition(", ")
    metadata = [("x-forwarded-for", each) for each in (first, last) if each]
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            answer = channel.unary_unary("/Who/ask")(b"", metadata=metadata, timeout=30)
        except grpc.RpcError as error:
            return str(error.details())
    # The only field of the response, of text.
    return bytes(answer)[2:].decode()


CALLS = {"http": overHTTP, "websocket": overWebSocket, "grpc": overGRPC}


class TrustedProxyTests(TestCase):
    """C{trustedProxies}, on the transports whose requests have fields."""

    timeout = 60

    async def serve(self, **options: Any) -> dict[str, int]:
        """Serve a method that gives the client's address, three times a minute for each."""
        from twisted.internet import reactor

        gateway = createProtocolGateway(port=0, protocols=list(CALLS), grpc={"port": 0}, **options)
        text = {"type": "object", "properties": {"address": {"type": "string"}}}
        gateway.addService(
            {
                "name": "Who",
                "methods": {
                    "ask": {
                        "handler": lambda request, context: {"address": context.client.address},
                        "input": {"type": "object", "properties": {}},
                        "output": text,
                    }
                },
                "rateLimit": {"requests": 3, "window": 60_000},
            }
        )
        ports = await gateway.listen(reactor=reactor)
        self.addCleanup(gateway.stop, 0)
        return {name: ports[name].getHost().port for name in CALLS}

    async def test_trusted(self) -> None:
        """The client that a trusted proxy names is the client, with a rate window of its own."""
        ports = await self.serve(trustedProxies="loopback")
        for name, call in CALLS.items():
            # What the client itself has written stands before the proxy's word.
            found = await deferToThread(call, ports[name], f"203.0.113.9, {CLIENT}")
            self.assertEqual(found, CLIENT, name)
        for name, call in CALLS.items():
            refused = await deferToThread(call, ports[name], CLIENT)
            self.assertIn("Too many calls", refused, name)
            found = await deferToThread(call, ports[name], "192.0.2.1")
            self.assertEqual(found, "192.0.2.1", name)

    async def test_forms(self) -> None:
        """Ports, brackets and quotes are taken off, and what is no address is nobody's word."""
        ports = await self.serve(trustedProxies="loopback")
        for forwarded, address in (
            (f"{CLIENT}:50000", CLIENT),
            ('"[::ffff:192.0.2.1]:1"', "192.0.2.1"),
            ("[2001:DB8::1]:1", "2001:db8::1"),
        ):
            for name, call in CALLS.items():
                found = await deferToThread(call, ports[name], forwarded)
                self.assertEqual(found, address, (name, forwarded))
        for name, call in CALLS.items():
            found = await deferToThread(call, ports[name], f"{CLIENT}, unknown")
            self.assertEqual(found, "127.0.0.1", name)
        # A further port is no further client.
        for name, call in CALLS.items():
            found = await deferToThread(call, ports[name], f"{CLIENT}:50001")
            self.assertIn("Too many calls", found, name)

    async def test_untrusted(self) -> None:
        """Without the option, and from elsewhere, nobody's word counts."""
        for options in ({}, {"trustedProxies": ["10.0.0.0/8"]}):
            ports = await self.serve(**options)
            for name, call in CALLS.items():
                found = await deferToThread(call, ports[name], CLIENT)
                self.assertEqual(found, "127.0.0.1", name)
