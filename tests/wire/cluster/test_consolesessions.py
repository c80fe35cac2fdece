"""Sessions of the console while the catalog fails over, and while it is away."""

import json
from http.client import HTTPConnection
from typing import Any

from tests.support.clients import ROOT
from tests.support.daemon import Daemon
from tests.support.selection import long
from tests.wire.cluster.test_primary import FailoverCase

API = "/console/api/v1/"


def send(
    node: Daemon, method: str, path: str, headers: dict[str, str], body: Any = None
) -> tuple[int, Any, Any]:
    """Send a request to the API of a node; return the status, the fields and the document."""
    connection = HTTPConnection(*node.address("admin"), timeout=60)
    try:
        connection.request(method, API + path, body and json.dumps(body), headers)
        response = connection.getresponse()
        text = response.read()
        return response.status, response.headers, json.loads(text) if text else None
    finally:
        connection.close()


def signIn(node: Daemon) -> dict[str, str]:
    """Sign in with the root pair; return both halves of the session."""
    pair = {"accessKey": ROOT.accessKey, "secretKey": ROOT.secretKey}
    status, headers, found = send(node, "POST", "session", {}, pair)
    assert status == 200, found
    return {
        "Cookie": headers["Set-Cookie"].partition(";")[0],
        "X-Console-Token": found["token"],
    }


@long("starts a cluster")
class ConsoleSessionTests(FailoverCase):
    """Two nodes, a primary and its standby."""

    def test_promotion(self) -> None:
        """
        Without a catalog, sessions are refused as unavailable, and key pairs still read some pages.
        The promoted standby has all sessions, and none that was ended.
        """
        cluster, primary, standby = self.makePair()
        nodes = self.startNodes(cluster)
        kept, ended = signIn(nodes[0]), signIn(nodes[0])
        self.assertEqual(send(nodes[1], "DELETE", "session", ended)[0], 204)

        def statuses(halves: dict[str, str]) -> list[int]:
            """Return the status of a request to each node."""
            return [send(node, "GET", "buckets", halves)[0] for node in nodes]

        self.assertEqual((statuses(kept), statuses(ended)), ([200, 200], [401, 401]))
        primary.kill()
        self.waitFor(lambda: statuses(kept) == [503, 503], "sessions of a catalog that is away")
        pair = {"accessKey": ROOT.accessKey, "secretKey": ROOT.secretKey}
        self.assertEqual(send(nodes[0], "POST", "session", {}, pair)[0], 503)
        status, _, found = send(nodes[0], "GET", "maintenance", ROOT.plainHeaders())
        self.assertEqual(status, 200, found)
        standby.promote()
        self.waitFor(lambda: statuses(kept) == [200, 200], "no sessions after the promotion")
        self.assertEqual(statuses(ended), [401, 401])
        # A change needs the new lease of the node.
        self.waitFor(lambda: send(nodes[0], "DELETE", "session", kept)[0] == 204, "no changes")
        self.assertEqual(statuses(kept), [401, 401])
