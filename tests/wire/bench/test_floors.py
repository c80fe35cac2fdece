"""The floors of the benches, started and asked by clients that share no code with them."""

from pathlib import Path

from attrs import evolve
from botocore.exceptions import ClientError
from twisted.trial.unittest import SynchronousTestCase

from bench import gatewaymeasuring, gatewayrecipes, httpmeasuring, httprecipes
from bench.httpcases import CASES as HTTP_CASES
from bench.processes import FLOOR_NAME
from bench.s3recipes import CREDENTIALS, floor
from bench.s3server import S3Server
from bench.signing import Credentials, Request, signer
from tests.support.clients import Account, botoClient
from tests.support.selection import long
from tests.wire.bench.test_gatewayservers import needPrograms


@long("measures programs of the bench")
class FloorTests(SynchronousTestCase):
    """Each floor gives the right answers, or its time would be worth nothing."""

    def setUp(self) -> None:
        """Make a folder for the server."""
        needPrograms("taskset")
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()

    def test_s3(self) -> None:
        """An S3 client stores, replaces, reads, lists and deletes objects."""
        with S3Server(floor(), self.folder) as server:
            client = botoClient(
                f"http://{server.host}", Account(CREDENTIALS.access, CREDENTIALS.secret)
            )
            client.create_bucket(Bucket="books")
            for key, body in (("b&b", b"x"), ("a b", b"old"), ("a b", b"n" * 20_000), ("c", b"")):
                put = client.put_object(Bucket="books", Key=key, Body=body, ContentType="a/b")
            self.assertEqual(put["ETag"], '"d41d8cd98f00b204e9800998ecf8427e"')
            got = client.get_object(Bucket="books", Key="a b")
            self.assertEqual((got["Body"].read(), got["ContentType"]), (b"n" * 20_000, "a/b"))
            head = client.head_object(Bucket="books", Key="a b")
            self.assertEqual((head["ContentLength"], head["ETag"]), (20_000, got["ETag"]))
            self.assertEqual(head["LastModified"], got["LastModified"])
            page = client.list_objects_v2(Bucket="books")
            names = [(each["Key"], each["Size"]) for each in page["Contents"]]
            self.assertEqual(names, [("a b", 20_000), ("b&b", 1), ("c", 0)])
            self.assertFalse(page["IsTruncated"])
            client.delete_object(Bucket="books", Key="a b")
            error = self.assertRaises(ClientError, client.head_object, Bucket="books", Key="a b")
            self.assertEqual(error.response["ResponseMetadata"]["HTTPStatusCode"], 404)

    def test_signature(self) -> None:
        """A request that is not signed, or by another key, is refused."""
        with S3Server(floor(), self.folder) as server:
            self.assertEqual(server.send(Request("PUT", "/b/k"), b"x").status, 200)
            self.assertEqual(server.exchange("GET", "/b/k").status, 403)
            for pair in (
                Credentials(CREDENTIALS.access, "another"),
                Credentials("another", CREDENTIALS.secret),
            ):
                server.authorizer = signer(pair)
                self.assertEqual(server.send(Request("GET", "/b/k")).status, 403)

    def test_durable(self) -> None:
        """What was answered is there after the process was killed."""
        recipe = floor()
        with S3Server(recipe, self.folder) as server:
            self.assertEqual(server.send(Request("PUT", "/b/k"), b"content").status, 200)
            server.process.kill()
            server.process.wait()
            (server.folder / "data").rename(self.folder / "data")
        again = evolve(recipe, command=lambda folder, port: recipe.command(self.folder, port))
        with S3Server(again, self.folder) as server:
            self.assertEqual(server.send(Request("GET", "/b/k")).body, b"content")

    def test_http(self) -> None:
        """The text is answered, and all else is not found."""
        case = HTTP_CASES["hello"]
        [recipe] = httprecipes.chooseRecipes([FLOOR_NAME], HTTP_CASES.values(), self.folder)
        with httpmeasuring.HTTPServer(recipe, self.folder) as server:
            able = [each for each in HTTP_CASES.values() if httpmeasuring.canMeasure(server, each)]
            self.assertEqual(able, [case])
            httpmeasuring.check(server, case, self.folder)
            self.assertEqual(server.exchange("GET", "/other").status, 404)

    def test_gateway(self) -> None:
        """Messages of each wire are sent back."""
        wires = []
        for recipe in gatewayrecipes.RECIPES:
            if recipe.name == FLOOR_NAME:
                with gatewaymeasuring.GatewayServer(recipe, self.folder) as server:
                    gatewaymeasuring.check(server)
                wires.append(recipe.wire)
        self.assertEqual(wires, ["websocket", "tcp", "udp"])
