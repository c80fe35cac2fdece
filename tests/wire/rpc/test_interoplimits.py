"""Long messages and metadata, half-closed streams and GOAWAY in mid-call, by other libraries."""

import json
import os
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any, ClassVar

from twisted.internet.threads import deferToThread

from storagegate import server
from storagegate.rpc.protos import loadProto
from tests.support.certificates import Authority
from tests.support.interop.cases import PROTO
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


class LimitsCase(RPCCase):
    """A server of the native engine whose connections end after a tenth of a second."""

    timeout = 120
    isSecure: ClassVar[bool] = False

    async def setUp(self) -> None:  # type: ignore[override]
        """Serve."""
        super().setUp()
        age = {"maxConnectionAge": 100, "maxConnectionAgeGrace": 20_000}
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
        self.messages = definition.methods
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
        """C{@connectrpc/connect-node} over gRPC."""
        program = CHECKOUT / "tests" / "support" / "interop" / "limitsconnect.js"
        path = str(await deferToThread(nodeModules, *CONNECT))
        url = f"http{'s' if self.isSecure else ''}://localhost:{self.port}"
        found = await self.program("node", str(program), url, self.descriptor, NODE_PATH=path)
        self.assertEqual(found, EXPECTED)


class SecureNodeTests(NodeTests):
    """The same with TLS."""

    isSecure = True


@long("takes seconds")
class PythonTests(LimitsCase):
    """grpcio, C{grpc.aio} and grpclib."""

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
