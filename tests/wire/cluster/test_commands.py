"""C{storagegate cluster}, and the other commands with a configuration that has the table."""

import json
import re
from typing import Any
from urllib.request import urlopen

import psycopg
from botocore.exceptions import ClientError
from twisted.trial.unittest import SynchronousTestCase

from storagegate.cli.awssettings import S3Credentials
from storagegate.cli.client import ConsoleClient
from storagegate.cli.invocation import CommandError
from storagegate.objects.issuedkeys import KeyPair
from tests.support.clients import ROOT, Account, botoClient
from tests.support.cluster import Cluster
from tests.support.selection import long
from tests.wire.s3.fixture import eventually


@long("starts a cluster")
class InitTests(SynchronousTestCase):
    """A cluster is made once."""

    def test_init(self) -> None:
        """The pair is printed once; a second time nothing is changed, and that is said."""
        cluster = Cluster(isInitialised=False)
        self.addCleanup(cluster.close)
        code, text = cluster.command("cluster", "status")
        self.assertEqual(
            (code, text),
            (1, "storagegate: the catalog is not initialised: see storagegate cluster init\n"),
        )
        code, text = cluster.command("cluster", "init")
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"\Astore [0-9a-f]{32} is initialised\nthe root key pair, shown")
        pair = re.findall(r"^AWS_\w+=(\S+)$", text, re.MULTILINE)
        self.assertEqual([len(each) for each in pair], [20, 40])
        before = cluster.rows("SELECT * FROM meta ORDER BY name")
        code, text = cluster.command("cluster", "init")
        self.assertEqual(code, 0)
        self.assertRegex(text, r"\Astore [0-9a-f]{32} is already initialised; nothing was changed")
        self.assertEqual(cluster.rows("SELECT * FROM meta ORDER BY name"), before)
        [node] = cluster.start()
        botoClient(node.url(), Account(*pair)).create_bucket(Bucket="bucket")
        node.stop()
        self.assertNotIn(pair[1], node.log)

    def test_pair(self) -> None:
        """A configured pair becomes that of the cluster, and later wins over it."""
        cluster = Cluster(isInitialised=False)
        self.addCleanup(cluster.close)
        mine = {"STORAGEGATE_ACCESS_KEY": "MINE", "STORAGEGATE_SECRET_KEY": "my-own-secret"}
        code, text = cluster.command("cluster", "init", environment=mine)
        self.assertEqual(code, 0, text)
        self.assertNotIn("my-own-secret", text)
        other = {"STORAGEGATE_ACCESS_KEY": "OTHER", "STORAGEGATE_SECRET_KEY": "the-other-secret"}
        one, two = cluster.node(), cluster.node(environment=other)
        one.start()
        two.start()
        botoClient(one.url(), Account("MINE", "my-own-secret")).list_buckets()
        botoClient(two.url(), Account("OTHER", "the-other-secret")).list_buckets()
        with self.assertRaises(ClientError):
            botoClient(two.url(), Account("MINE", "my-own-secret")).list_buckets()

    def test_embedded(self) -> None:
        """Without the table the commands of a cluster say so; with it those of a directory."""
        cluster = Cluster(isInitialised=False)
        self.addCleanup(cluster.close)
        path = cluster.directory / "empty.toml"
        path.write_text("")
        for action in ("init", "status", "fsck"):
            code, text = cluster.command("cluster", action, path=path)
            self.assertEqual(code, 1)
            self.assertRegex(
                text, r"\Astoragegate: the configuration has no \[cluster\] table .*\n\Z"
            )
        for command in (("fsck",), ("recover", "--to", "x")):
            code, text = cluster.command(*command)
            self.assertEqual(code, 1)
            self.assertRegex(
                text, r"\Astoragegate: \[cluster\] configures the store, so it is not in .*\n\Z"
            )


@long("starts a cluster")
class CommandTests(SynchronousTestCase):
    """Commands beside two nodes."""

    def setUp(self) -> None:
        """Start the nodes."""
        self.cluster = Cluster()
        self.addCleanup(self.cluster.close)
        self.nodes = self.cluster.start(2)
        self.client = self.cluster.client(self.nodes[0])
        self.client.create_bucket(Bucket="bucket")

    def succeed(self, *arguments: str) -> str:
        """Run a command that succeeds."""
        code, text = self.cluster.command(*arguments)
        self.assertEqual(code, 0, text)
        return text

    def test_keys(self) -> None:
        """A key that is issued is valid on every node at once, until it is revoked."""
        text = self.succeed("keys", "create", "--account", "bob")
        account = Account(*re.findall(r"=(\S+)$", text, re.MULTILINE))
        clients = [botoClient(each.url(), account) for each in self.nodes]

        def isKnown(client: Any) -> bool:
            try:
                client.list_buckets()
            except ClientError:
                return False
            return True

        self.assertTrue(eventually(lambda: all(map(isKnown, clients))))
        self.assertIn(f"{account.accessKey}  bob", self.succeed("keys", "list"))
        code, text = self.cluster.command(
            "keys",
            "create",
            "--account",
            "x",
            "--access-key",
            ROOT.accessKey,
            "--secret-stdin",
            stdin="abc\n",
        )
        self.assertEqual(
            (code, text), (1, f"storagegate: {ROOT.accessKey} is the root access key\n")
        )
        self.succeed("keys", "revoke", "--access-key", account.accessKey)
        self.assertTrue(eventually(lambda: not any(map(isKnown, clients))))
        code, text = self.cluster.command("keys", "revoke", "--access-key", account.accessKey)
        self.assertEqual(code, 1)

    def test_reusedNames(self) -> None:
        """A key of a removed account that a bucket names is issued only on request."""
        text = self.succeed("keys", "create", "--account", "ada")
        old = re.findall(r"=(\S+)$", text, re.MULTILINE)[0]
        statement = {
            "Effect": "Deny",
            "NotPrincipal": {"AWS": ["root", "ada"]},
            "Action": "s3:GetObject",
            "Resource": "arn:aws:s3:::bucket/*",
        }
        policy = json.dumps({"Statement": statement})
        self.client.put_bucket_policy(Bucket="bucket", Policy=policy)
        text = self.succeed("keys", "create", "--account", "ada")
        second = re.findall(r"=(\S+)$", text, re.MULTILINE)[0]
        self.succeed("keys", "revoke", "--access-key", old)
        self.succeed("keys", "create", "--account", "eve")
        self.succeed("keys", "revoke", "--access-key", second)
        self.assertEqual(
            self.cluster.command("keys", "create", "--account", "ada"),
            (
                1,
                "storagegate: The removed account ada is still named in a policy or an ACL of:"
                " bucket (FAILED_PRECONDITION); --reuse issues the key\n",
            ),
        )
        pair = KeyPair(ROOT.accessKey, ROOT.secretKey)
        remote = ConsoleClient(
            self.nodes[0].url("admin"), S3Credentials(pair.accessKey, pair.secretKey)
        )
        with self.assertRaises(CommandError) as caught:
            remote.request("POST", "keys", {"account": "ada"})
        self.assertEqual(caught.exception.error, "FAILED_PRECONDITION")
        self.succeed("keys", "create", "--account", "ada", "--reuse")

    def test_status(self) -> None:
        """The state names store, primary, nodes and garbage, in lines and as JSON."""
        found = json.loads(self.succeed("cluster", "status", "--json"))
        self.assertEqual(found["timeline"], 1)
        self.assertEqual(found["primary"], f"127.0.0.1:{self.cluster.primary.port}")
        self.assertEqual(found["backlog"], {"freed": 0, "garbage": 0, "holds": 0})
        self.assertEqual([each["isAlive"] for each in found["nodes"]], [True, True])
        self.assertEqual(
            {each["node"].rpartition(":")[2] for each in found["nodes"]},
            {str(each.pid) for each in self.nodes},
        )
        self.assertEqual((found["standbys"], found["problem"]), ([], None))
        with urlopen(self.nodes[0].url("admin") + "/metrics") as answer:
            page = answer.read().decode()
        self.assertIn("\nstoragegate_cluster_leases 1.0\n", page)
        self.assertIn("\nstoragegate_cluster_collected_total 0.0\n", page)
        lines = self.succeed("cluster", "status").splitlines()
        self.assertEqual(lines[0], f"store {found['store']}, blobs {self.cluster.blobs}")
        self.assertEqual(sum("valid for" in line for line in lines), 2)

    def test_doctor(self) -> None:
        """The doctor looks at catalog and blobs, and not at the disk; a wrong one is a problem."""
        code, text = self.cluster.command("doctor", "--s3", "off", "--admin", "off")
        self.assertRegex(text, r"ok +cluster: catalog and blobs are of store \w+, 2 nodes hold a l")
        self.assertIn("warning  cluster: the latest acknowledged writes may be lost", text)
        self.assertNotIn("sqlite", text)
        self.assertIsNone(re.search("^problem +(?! |permissions|ports)", text, re.MULTILINE), text)
        path = self.cluster.configuration(blobs="files:/nowhere")
        code, text = self.cluster.command("doctor", path=path)
        self.assertEqual(code, 1)
        self.assertIn("problem  cluster: /nowhere does not exist; is it mounted?", text)

    def test_fsck(self) -> None:
        """What is missing, short, changed or wrongly counted is found, and reads of it fail."""
        for number in range(4):
            self.client.put_object(
                Bucket="bucket", Key=f"key{number}", Body=bytes(100_000 + number)
            )
        self.client.put_object(Bucket="bucket", Key="inline", Body=b"inline")
        self.assertEqual(self.succeed("cluster", "fsck", "--verify"), "0 problems\n")
        rows = self.cluster.rows("SELECT id, size FROM blobs")
        paths = {size: next((self.cluster.directory / "blobs").rglob(id)) for id, size in rows}
        paths[100_000].unlink()
        paths[100_001].write_bytes(b"short")
        paths[100_002].write_bytes(b"x" * 100_002)
        self.cluster.rows("UPDATE blobs SET refs = 7 WHERE size = 100003")
        self.cluster.rows("INSERT INTO usagedeltas SELECT id, 1, -5, 0, 2 FROM buckets")
        self.cluster.rows("UPDATE objects SET inline = 'x' WHERE key = 'inline'")
        code, text = self.cluster.command("cluster", "fsck", "--verify")
        self.assertEqual(code, 1)
        names = {size: path.name for size, path in paths.items()}
        for line in (
            f"blob {names[100_000]} is missing; referenced by bucket/'key0'",
            f"blob {names[100_001]} has 5 bytes, not 100001; referenced by bucket/'key1'",
            f"blob {names[100_002]} differs from the bytes that were written; referenced by"
            " bucket/'key2'",
            f"blob {names[100_003]} has 7 references, not 1",
            "object bucket/'inline' differs from the bytes that were written",
            "bucket bucket has wrong totals: 6 objects, not 5, 400007 bytes, not 400012, 2 bytes of"
            " uploads, not 0",
            "6 problems",
        ):
            self.assertIn(line, text.splitlines())
        code, text = self.cluster.command("cluster", "fsck", "--repair")
        self.assertIn(f"blob {names[100_003]} has 7 references, not 1: repaired", text)
        self.assertIn("2 bytes of uploads, not 0: repaired", text)
        self.assertIn("\n2 problems\n", text)
        code, text = self.cluster.command("cluster", "fsck")
        self.assertIn("\n2 problems\n", text)
        self.assertEqual(self.cluster.rows("SELECT refs FROM blobs WHERE size = 100003"), [(1,)])
        self.assertEqual(self.cluster.rows("SELECT count(*) FROM blobs WHERE damaged"), [(2,)])

    def test_fsckOfGoneBucket(self) -> None:
        """Changes that a removed bucket left behind are no problem, and are folded away."""
        self.client.put_object(Bucket="bucket", Key="key", Body=b"body")
        self.cluster.rows("SELECT foldusage()")
        for each in self.nodes:
            each.stop()
        # As the last deletion leaves it, before a node folds.
        self.cluster.rows("INSERT INTO usagedeltas SELECT id, -1, -4, 0, 0 FROM buckets")
        self.cluster.rows("DELETE FROM objects")
        self.cluster.rows("SELECT deletebucket('bucket')")
        self.assertEqual(self.succeed("cluster", "fsck", "--verify"), "0 problems\n")
        self.cluster.rows("SELECT foldusage()")
        left = "SELECT bucketid FROM usage UNION ALL SELECT bucketid FROM usagedeltas"
        self.assertEqual(self.cluster.rows(left), [])

    def test_fsckOfGarbage(self) -> None:
        """A blob may be missing whose references were all given back, as in a restored backup."""
        self.client.put_object(Bucket="bucket", Key="key", Body=bytes(100_000))
        for each in self.nodes:
            each.stop()
        [(blob,)] = self.cluster.rows("SELECT id FROM blobs")
        next((self.cluster.directory / "blobs").rglob(blob)).unlink()
        self.cluster.rows("DELETE FROM objects")
        self.cluster.rows("INSERT INTO freed (blob) VALUES (%s)", blob)
        self.cluster.rows("INSERT INTO usagedeltas SELECT id, -1, -100000, 0, 0 FROM buckets")
        self.assertEqual(self.succeed("cluster", "fsck", "--verify"), "0 problems\n")

    def test_usageOfBucketThatGoes(self) -> None:
        """A fold beside the removal of a bucket does not bring its row of usage back."""
        for each in self.nodes:
            each.stop()
        self.cluster.rows("INSERT INTO usagedeltas SELECT id, 1, 4, 0, 0 FROM buckets")
        with psycopg.connect(self.cluster.conninfos[0]) as removal:
            removal.execute("SELECT deletebucket('bucket')")
            self.cluster.rows("SELECT foldusage()")
        self.cluster.rows("SELECT foldusage()")
        left = "SELECT bucketid FROM usage UNION ALL SELECT bucketid FROM usagedeltas"
        self.assertEqual(self.cluster.rows(left), [])
