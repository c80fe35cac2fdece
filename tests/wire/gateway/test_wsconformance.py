"""The Autobahn project's conformance suite against our WebSockets."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from twisted.internet.defer import maybeDeferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SkipTest

from storagegate.gateway.transports.websocket import WebSocketOptions
from storagegate.http.application import Application
from tests.support.gateway import makeHost
from tests.support.wsecho import EchoAdapter
from tests.wire.http.support import ServedCase

RUN_SECONDS = 280

GOOD = ("OK", "INFORMATIONAL")
"""What it says of cases that there is nothing to say against; C{NON-STRICT} is not among it."""


class ConformanceTests(ServedCase):
    """The suite runs where its C{wstest} is installed, which needs Python 2.7."""

    timeout = RUN_SECONDS + 20

    async def test_functionalCases(self) -> None:
        """Every functional case is passed strictly: all but those that measure speed."""
        wstest = shutil.which("wstest")
        if wstest is None:
            raise SkipTest("wstest is not on the path: it needs Python 2.7")
        host, _ = makeHost(self.reactor)
        app = Application()
        adapter = EchoAdapter(host, WebSocketOptions(path="/"))
        app.all("/", adapter.answer)
        port: Any = await app.listen("tcp:0:interface=127.0.0.1", reactor=self.reactor)
        self.addCleanup(lambda: maybeDeferred(app.close, 0))
        self.addCleanup(adapter.close, 0)
        directory = Path(self.mktemp())
        directory.mkdir(parents=True)
        specification = directory / "specification.json"
        specification.write_text(
            json.dumps(
                {
                    "outdir": str(directory),
                    "servers": [{"url": f"ws://127.0.0.1:{port.getHost().port}/"}],
                    "cases": ["*"],
                    "exclude-cases": ["9.*", "12.*", "13.*"],
                    "exclude-agent-cases": {},
                }
            )
        )

        def run() -> bytes:
            command = [wstest, "-m", "fuzzingclient", "-s", str(specification)]
            done = subprocess.run(command, capture_output=True, timeout=RUN_SECONDS, check=False)
            return done.stdout + done.stderr

        output = await deferToThread(run)
        index = directory / "index.json"
        self.assertTrue(index.exists(), output[-2000:])
        (cases,) = json.loads(index.read_text()).values()
        self.assertGreater(len(cases), 240)
        wrong = {
            name: case
            for name, case in cases.items()
            if case["behavior"] not in GOOD or case["behaviorClose"] not in GOOD
        }
        self.assertEqual(wrong, {})
