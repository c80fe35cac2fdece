"""Writes that wait for a standby, and a standby that is away."""

import json
from time import monotonic
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from botocore.exceptions import ClientError
from twisted.trial.unittest import SynchronousTestCase

from tests.support.cluster import Cluster
from tests.support.daemon import Daemon
from tests.support.selection import long
from tests.wire.s3.fixture import eventually


def readiness(node: Daemon) -> tuple[int, Any]:
    """Give status and document of C{/readyz}."""
    try:
        with urlopen(node.url("admin") + "/readyz") as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        with error:
            return error.code, json.load(error)


@long("starts a cluster")
class StandbyTests(SynchronousTestCase):
    """C{synchronous = "required"}."""

    def test_away(self) -> None:
        """
        While the standby is away a write is 503 within seconds, and C{/readyz} and the command say
        why; then the node serves again by itself.
        """
        cluster = Cluster(isSynchronous=True)
        self.addCleanup(cluster.close)
        [node] = cluster.start()
        client = cluster.client(node, patient=False)
        client.create_bucket(Bucket="bucket")
        client.put_object(Bucket="bucket", Key="before", Body=b"1")
        self.assertEqual(cluster.command("cluster", "status")[0], 0)
        standby = cluster.standby
        assert standby is not None
        standby.stop()
        away = "no synchronous standby of the catalog is connected"
        began = monotonic()
        error = self.assertRaises(
            ClientError, client.put_object, Bucket="bucket", Key="never", Body=b"2"
        )
        self.assertEqual(error.response["ResponseMetadata"]["HTTPStatusCode"], 503)
        self.assertLess(monotonic() - began, 8.0)
        self.assertTrue(eventually(lambda: away in readiness(node)[1].get("error", "")), node.log)
        self.assertEqual(readiness(node)[0], 503)
        error = self.assertRaises(
            ClientError, client.put_object, Bucket="bucket", Key="never", Body=b"2"
        )
        self.assertEqual(error.response["ResponseMetadata"]["HTTPStatusCode"], 503)
        code, text = cluster.command("cluster", "status")
        self.assertEqual(code, 1)
        self.assertIn("problem: no synchronous standby confirms commits", text)
        standby.start()
        self.assertTrue(eventually(lambda: readiness(node)[0] == 200), node.log)
        client.put_object(Bucket="bucket", Key="after", Body=b"3")
        body = client.get_object(Bucket="bucket", Key="before")["Body"].read()
        self.assertEqual(body, b"1")
        self.assertEqual(node.stop(), 0)
        self.assertNotIn("Traceback", node.log)

    def test_none(self) -> None:
        """Where no commit waits for a standby, nothing is served."""
        cluster = Cluster(options={"synchronous": "required"})
        self.addCleanup(cluster.close)
        [node] = cluster.start()
        error = self.assertRaises(
            ClientError, cluster.client(node, patient=False).create_bucket, Bucket="bucket"
        )
        self.assertEqual(error.response["ResponseMetadata"]["HTTPStatusCode"], 503)
        why = "synchronous_standby_names of the catalog is empty"
        code, text = cluster.command("keys", "create", "--account", "ann")
        self.assertEqual(code, 1, text)
        self.assertIn(why, text)
        self.assertTrue(eventually(lambda: why in readiness(node)[1].get("error", "")), node.log)

    def test_noLonger(self) -> None:
        """Once commits wait for no standby, the next write is refused, not only the next lease."""
        cluster = Cluster(isSynchronous=True)
        self.addCleanup(cluster.close)
        [node] = cluster.start()
        client = cluster.client(node, patient=False)
        client.create_bucket(Bucket="bucket")
        cluster.primary.execute("ALTER SYSTEM RESET synchronous_standby_names")
        cluster.primary.execute("SELECT pg_reload_conf()")
        self.assertTrue(
            eventually(
                lambda: cluster.primary.value("SHOW synchronous_standby_names") == "",
            )
        )
        error = self.assertRaises(
            ClientError, client.put_object, Bucket="bucket", Key="never", Body=b"1"
        )
        self.assertEqual(error.response["ResponseMetadata"]["HTTPStatusCode"], 503)
        standby = cluster.standby
        assert standby is not None
        cluster.primary.execute("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
        cluster.primary.execute("SELECT pg_reload_conf()")
        self.assertTrue(eventually(lambda: readiness(node)[0] == 200), node.log)
        client.put_object(Bucket="bucket", Key="after", Body=b"2")
