"""Long messages and metadata, half-closed streams and GOAWAY in mid-call, by other libraries."""

import asyncio
import json
import os
import subprocess
import sys
from base64 import b64encode
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import grpc
import grpc.aio
from twisted.internet.threads import deferToThread

from storagegate import server
from storagegate.rpc.protos import loadProto
from tests.support.certificates import Authority
from tests.support.interop.cases import INITIAL_NAME, PROTO
from tests.support.interop.service import InteropService
from tests.support.modules import CHECKOUT
from tests.support.nodepackages import CONNECT, nodeModules
from tests.support.selection import long
from tests.wire.rpc.support import RPCCase

LONGEST = (4 << 20) - 100

SECONDS = 60

CALLS = 300

EXPECTED = {
    "large": LONGEST,
    "metadata": 8192,
    "halfClosed": 5,
    "statuses": {"0": CALLS},
    "through": 40,
}
"""What a client finds; its stream goes on while connections end, and other calls are made."""


REFUSED = "ConnectError: [internal] Stream closed with error code NGHTTP2_REFUSED_STREAM"
"""How Node reports a stream that it has not sent before GOAWAY."""


def encode(number: int, value: bytes) -> bytes:
    """Encode a field of bytes of a message."""
    return bytes([number << 3 | 2]) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    found = b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


LARGE = b"\x08" + _varint(LONGEST) + encode(2, encode(1, bytes(LONGEST)))
"""A C{SimpleRequest} for a response of the same size."""


def responses(number: int) -> bytes:
    """Encode a request for so many responses, each after 20 ms."""
    return encode(1, b"\x08\x0a\x10" + _varint(20_000)) * number


def _found(large: bytes, initial: str, half: int, codes: Any, through: int) -> Any:
    """Return the findings in the form of L{EXPECTED}."""
    payload = encode(1, encode(1, bytes(LONGEST)))
    return {
        "large": LONGEST if large == payload else len(large),
        "metadata": len(initial),
        "halfClosed": half,
        "statuses": {str(code.value[0]): count for code, count in Counter(codes).items()},
        "through": through,
    }


class LimitsCase(RPCCase):
    """A server of the native engine whose connections end after a third of a second."""

    timeout = 120
    isSecure: ClassVar[bool] = False

    async def setUp(self) -> None:  # type: ignore[override]
        """Serve."""
        super().setUp()
        age = {"maxConnectionAge": 300, "maxConnectionAgeGrace": 20_000}
        app = server.grpc().withOptions(
            grpc={"health": False, "engine": "native", "maxMetadataSize": "64kb", **age}
        )
        self.authority: Path | None = None
        if self.isSecure:
            authority = Authority(Path(self.mktemp()).absolute())
            cert, key = authority.issue()
            app.withOptions(tls={"cert": str(cert), "key": str(key)})
            self.authority = authority.path
        definition = loadProto(str(PROTO)).TestService
        self.descriptor = b64encode(definition.file.serialized_pb).decode()
        app.addService(definition=definition, implementation=InteropService(self.reactor))
        self.port = await self.listen(app)

    async def program(self, *command: str, **environment: str) -> Any:
        """Run a program, whose last argument is the file of the authority; return its findings."""
        last = [] if self.authority is None else [str(self.authority)]

        def run() -> Any:
            done = subprocess.run(
                [*command, *last],
                cwd=CHECKOUT,
                env={**os.environ, "PYTHONPATH": str(CHECKOUT), **environment},
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)

        return await deferToThread(run)


@long("runs Node and npm")
class NodeTests(LimitsCase):
    """grpc-js and Connect's client."""

    async def test_grpcJs(self) -> None:
        """C{@grpc/grpc-js}."""
        program = CHECKOUT / "tests" / "support" / "interop" / "limitsgrpcjs.js"
        path = str(await deferToThread(nodeModules))
        found = await self.program("node", str(program), str(self.port), str(PROTO), NODE_PATH=path)
        self.assertEqual(found, EXPECTED)

    async def test_connect(self) -> None:
        """
        C{@connectrpc/connect-node} over gRPC.

        Node refuses by itself what it has not sent when it receives GOAWAY; grpc-js repeats it,
        Connect's client does not.
        """
        program = CHECKOUT / "tests" / "support" / "interop" / "limitsconnect.js"
        path = str(await deferToThread(nodeModules, *CONNECT))
        url = f"http{'s' if self.isSecure else ''}://localhost:{self.port}"
        found = await self.program("node", str(program), url, self.descriptor, NODE_PATH=path)
        statuses = found.pop("statuses")
        refused = statuses.pop(REFUSED, 0)
        self.assertEqual(statuses, {"0": CALLS - refused})
        self.assertLess(refused, CALLS // 10)
        self.assertEqual(found, {name: EXPECTED[name] for name in found})


class SecureNodeTests(NodeTests):
    """The same with TLS."""

    isSecure = True


@long("takes seconds")
class PythonTests(LimitsCase):
    """grpcio, C{grpc.aio} and grpclib."""

    def credentials(self) -> Any:
        """Return the credentials of a channel."""
        if self.authority is None:
            return None
        return grpc.ssl_channel_credentials(self.authority.read_bytes())

    async def test_grpcio(self) -> None:
        """grpcio."""
        credentials = self.credentials()
        address = f"localhost:{self.port}"

        def run() -> Any:
            options = [("grpc.max_metadata_size", 1 << 16)]
            with (
                grpc.insecure_channel(address, options)
                if credentials is None
                else grpc.secure_channel(address, credentials, options)
            ) as channel:
                unary = channel.unary_unary("/interop.TestService/UnaryCall")
                large = unary(LARGE, timeout=SECONDS)
                metadata = ((INITIAL_NAME, "v" * 8192),)
                _, call = unary.with_call(b"", metadata=metadata, timeout=SECONDS)
                initial = dict(call.initial_metadata())[INITIAL_NAME]
                duplex = channel.stream_stream("/interop.TestService/FullDuplexCall")
                half = len(list(duplex(iter([responses(5)]), timeout=SECONDS)))
                stream = channel.unary_stream("/interop.TestService/StreamingOutputCall")
                streaming = stream(responses(40), timeout=SECONDS)
                codes = [unary.future(b"", timeout=SECONDS).code() for _ in range(CALLS)]
                through = len(list(streaming))
            return _found(large, initial, half, codes, through)

        self.assertEqual(await deferToThread(run), EXPECTED)

    async def test_grpcAio(self) -> None:
        """C{grpc.aio}."""
        credentials = self.credentials()
        address = f"localhost:{self.port}"

        async def run() -> Any:
            options = [("grpc.max_metadata_size", 1 << 16)]
            async with (
                grpc.aio.insecure_channel(address, options)
                if credentials is None
                else grpc.aio.secure_channel(address, credentials, options)
            ) as channel:
                unary = channel.unary_unary("/interop.TestService/UnaryCall")
                large = await unary(LARGE, timeout=SECONDS)
                call = unary(b"", metadata=((INITIAL_NAME, "v" * 8192),), timeout=SECONDS)
                initial = (await call.initial_metadata())[INITIAL_NAME]
                duplex = channel.stream_stream("/interop.TestService/FullDuplexCall")
                half = len([each async for each in duplex(iter([responses(5)]), timeout=SECONDS)])
                stream = channel.unary_stream("/interop.TestService/StreamingOutputCall")

                async def watch() -> int:
                    return len([each async for each in stream(responses(40), timeout=SECONDS)])

                watching = asyncio.ensure_future(watch())
                codes = [await unary(b"", timeout=SECONDS).code() for _ in range(CALLS)]
                return _found(large, initial, half, codes, await watching)

        self.assertEqual(await deferToThread(asyncio.run, run()), EXPECTED)

    async def test_grpclib(self) -> None:
        """grpclib, which takes any GOAWAY for the end of its connection, and makes another one."""
        module = "tests.support.interop.limitsgrpclib"
        found = await self.program(sys.executable, "-m", module, str(self.port))
        statuses = found.pop("statuses")
        through = found.pop("through")
        self.assertEqual(found, {name: EXPECTED[name] for name in found})
        self.assertIn("terminated", str(through))
        self.assertEqual(sum(statuses.values()), CALLS)
        self.assertGreater(statuses["0"], CALLS // 2)


class SecurePythonTests(PythonTests):
    """The same with TLS."""

    isSecure = True
