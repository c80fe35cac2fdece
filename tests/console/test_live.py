"""The event stream of the API."""

import json
from contextlib import ExitStack
from http.client import HTTPConnection
from time import monotonic, time
from typing import Any

from botocore.exceptions import ClientError

from tests.console.eventstream import EventStream
from tests.console.fixture import ConsoleCase
from tests.support.clients import ROOT, Account, botoClient
from tests.support.contention import Stopwatch
from tests.support.selection import long
from tests.wire.s3.fixture import eventually

MIB = 1 << 20

_BEHIND = 2000


class EventsTests(ConsoleCase):
    """What a stream has."""

    def open(
        self,
        query: str = "topics=requests",
        account: Account = ROOT,
        headers: dict[str, str] | None = None,
        receiveBytes: int = 0,
    ) -> EventStream:
        """Open a stream, with a session or a key pair."""
        stream = EventStream(
            self.admin, query, headers or account.plainHeaders(), receiveBytes=receiveBytes
        )
        self.addCleanup(stream.close)
        return stream

    def test_requests(self) -> None:
        """Each request is an event with its operation, status, key, times and sizes."""
        bucket = self.makeBucket()
        stream = self.open(f"topics=requests&bucket={bucket}&operation=PutObject")
        self.assertEqual(stream.status, 200)
        self.assertEqual(stream.headers["Content-Type"], "text/event-stream; charset=utf-8")
        self.s3.put_object(Bucket=bucket, Key="<b>ü", Body=b"12345")
        event = stream.next("requests")
        self.assertEqual(
            [event.get(name) for name in ("wire", "operation", "status", "key", "bytesIn")],
            ["s3", "PutObject", 200, "<b>ü", 5],
        )
        self.assertEqual((event["accessKey"], event["bucket"]), (ROOT.accessKey, bucket))
        self.assertGreater(event["ms"], 0)
        self.assertNotIn("code", event)

    def test_refused(self) -> None:
        """A request that is refused has the code and the sentence of its error."""
        bucket = self.makeBucket()
        stream = self.open("topics=requests&status=error")
        with self.assertRaises(ClientError):
            self.s3.get_object(Bucket=bucket, Key="absent")
        event = stream.next("requests")
        self.assertEqual((event["status"], event["code"]), (404, "NoSuchKey"))
        self.assertIn("does not exist", event["reason"])
        wrong = botoClient(self.endpoint, Account(ROOT.accessKey, "another-secret"))
        with self.assertRaises(ClientError):
            wrong.list_objects_v2(Bucket=bucket)
        event = stream.next("requests")
        found = (event["operation"], event["code"], event.get("accessKey"))
        self.assertEqual(found, ("ListObjectsV2", "SignatureDoesNotMatch", None))

    def test_rule(self) -> None:
        """A refusal has the rule and the statement; another account's policy stays unnamed."""
        bucket = self.makeBucket()
        reader = self.issueKey("ruled", "--policy", "readonly")
        statement = {
            "Sid": "KeepAll",
            "Effect": "Deny",
            "Principal": "*",
            "Action": "s3:GetObject",
            "Resource": f"arn:aws:s3:::{bucket}/*",
        }
        self.s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Statement": [statement]}))
        streams = [
            self.open(f"topics=requests&bucket={bucket}&status=403", each)
            for each in (ROOT, reader)
        ]
        client = botoClient(self.endpoint, reader)
        with self.assertRaises(ClientError) as refused:
            client.get_object(Bucket=bucket, Key="a")
        self.assertEqual(refused.exception.response["Error"]["Message"], "Access Denied")
        with self.assertRaises(ClientError):
            client.put_object(Bucket=bucket, Key="a", Body=b"")
        for stream, rule, number in zip(
            streams,
            (
                f"statement KeepAll of the policy of {bucket} denies s3:GetObject",
                "a statement of the bucket's policy denies it",
            ),
            (1, None),
            strict=True,
        ):
            event = stream.next("requests")
            self.assertEqual((event["rule"], event.get("statement")), (rule, number))
            event = stream.next("requests")
            self.assertEqual(event["rule"], "the policy readonly of the key does not include write")
            self.assertEqual(event["reason"], "Access Denied")
        kept = self.call("GET", "overview").json["refusals"][:2]
        self.assertEqual([each["operation"] for each in kept], ["PutObject", "GetObject"])
        self.assertEqual(kept[1]["statement"], 1)
        for account, numbers in ((ROOT, [None, 1]), (reader, [None, None])):
            later = self.open(f"topics=requests&bucket={bucket}", account)
            items = later.next("refusals")["items"]
            found = [each["operation"] for each in items]
            self.assertEqual(found, ["PutObject", "GetObject"])
            self.assertEqual([each.get("statement") for each in items], numbers)

    def test_surrogate(self) -> None:
        """A Sid with half of a surrogate pair, which JSON can escape, keeps no refusal away."""
        bucket = self.makeBucket()
        reader = self.issueKey("halved", "--policy", "readonly")
        statement = {
            "Sid": "a\ud800b",
            "Effect": "Deny",
            "Principal": "*",
            "Action": "s3:GetObject",
            "Resource": f"arn:aws:s3:::{bucket}/*",
        }
        self.s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Statement": [statement]}))
        stream = self.open(f"topics=requests&bucket={bucket}&status=403")
        with self.assertRaises(ClientError):
            botoClient(self.endpoint, reader).get_object(Bucket=bucket, Key="a")
        rule = f"statement a?b of the policy of {bucket} denies s3:GetObject"
        self.assertEqual(stream.next("requests")["rule"], rule)
        kept = self.call("GET", "overview").json["refusals"]
        self.assertIn(rule, [each.get("rule") for each in kept])

    @long("takes a second or more")
    def test_filters(self) -> None:
        """A stream has only what all of its filters let through."""
        bucket = self.makeBucket()
        session = self.signIn()
        streams = [
            self.open(f"topics=requests&bucket={bucket}&{query}", headers=session)
            for query in (
                "operation=PutObject&prefix=b",
                "status=4xx",
                "status=404&wire=s3",
                "slowerThanMs=60000",
                "key=other",
                "wire=grpc",
                "operation=HeadBucket",
            )
        ]
        for key in ("a", "b"):
            self.s3.put_object(Bucket=bucket, Key=key, Body=b"")
        with self.assertRaises(ClientError):
            self.s3.get_object(Bucket=bucket, Key="c")
        self.s3.head_bucket(Bucket=bucket)
        self.assertEqual(streams[0].next("requests")["key"], "b")
        self.assertEqual(streams[1].next("requests")["key"], "c")
        self.assertEqual(streams[2].next("requests")["key"], "c")
        self.assertEqual(streams[6].next("requests")["operation"], "HeadBucket")
        # All events have been sent: these had none.
        self.assertEqual(self.send("DELETE", "session", headers=session).status, 204)
        for stream in streams[3:6]:
            self.assertEqual([name for name, _ in stream], ["signedout"])

    @long("takes seconds")
    def test_ownOnly(self) -> None:
        """
        A key without a role sees its own requests, and no health or figures; not those of another
        key of its account, which may reach what it does not.
        """
        bucket = self.makeBucket()
        account = self.issueKey("watcher")
        stream = self.open(account=account)
        self.s3.list_objects_v2(Bucket=bucket)
        botoClient(self.endpoint, self.issueKey("watcher")).list_buckets()
        botoClient(self.endpoint, account).create_bucket(Bucket=self.makeName())
        operation = ""
        while operation != "CreateBucket":
            event = stream.next("requests")
            operation = event["operation"]
            self.assertEqual(event["accessKey"], account.accessKey)
        for topic in ("health", "metrics", "requests,health"):
            refused = self.open(f"topics={topic}", account)
            self.assertEqual((refused.status, refused.body()["details"]["role"]), (403, "auditor"))

    def test_noNumber(self) -> None:
        """A duration that is no number is refused: the other processes could not read it."""
        for value in ("nan", "inf", "-inf"):
            self.assertEqual(self.open(f"slowerThanMs={value}").status, 400)

    @long("takes seconds")
    def test_topics(self) -> None:
        """The state of the daemon, jobs and figures come at once and when they change."""
        stream = self.open("topics=health,jobs,metrics")
        first: dict[str, Any] = {}
        for name, document in stream:
            first.setdefault(name, document)
            if len(first) == 3:
                break
        self.assertEqual(first["health"]["status"], "ok")
        self.assertEqual(first["health"]["parts"]["s3"], "listening")
        self.assertIn("items", first["jobs"])
        bucket = self.makeBucket()
        wanted = {"kind": "deletePrefix", "bucket": bucket}
        id = self.call("POST", "jobs", wanted).json["id"]
        items = stream.next("jobs")["items"]
        self.assertEqual(items[0]["id"], id)
        self.assertGreater(stream.next("metrics")["values"]["memory"], 10 * MIB)

    def test_invalid(self) -> None:
        """Unknown topics and parameters are refused."""
        for query in ("topics=x", "topics=", "topics=requests&x=1", "slowerThanMs=x"):
            self.assertEqual(self.open(query).status, 400, query)
        self.assertEqual(self.send("GET", "events").status, 401)
        self.assertEqual(self.call("HEAD", "events").status, 200)

    def assertSignedOut(self, stream: EventStream) -> None:
        """Assert that a stream says so, and ends, within two seconds."""
        watch = Stopwatch()
        events = [name for name, _ in stream]
        self.assertEqual(events[-1:], ["signedout"])
        self.assertLess(watch.seconds(), 2.0)

    @long("takes seconds")
    def test_signedOut(self) -> None:
        """A stream ends with its session, and no later than two seconds after its key."""
        admin = self.signIn()
        stream = self.open(headers=admin)
        other = self.open(headers=self.signIn())
        self.assertEqual(self.send("DELETE", "session", headers=admin).status, 204)
        self.assertSignedOut(stream)
        other.close()
        for change in ({"disabled": True}, {"newSecret": True}, {"expiresMs": 0}, None):
            account = self.issueKey("leaver")
            streams = [self.open(account=account), self.open(headers=self.signIn(account))]
            path = f"keys/{account.accessKey}"
            if change is None:
                self.assertEqual(self.call("DELETE", path).status, 204)
            elif "expiresMs" in change:
                # In the future, because the API refuses a time in the past.
                ends = time() + 3.0
                change = {"expiresMs": int(ends * 1000)}
                self.assertEqual(self.call("PATCH", path, change).status, 200)
                self.assertTrue(eventually(lambda ends=ends: time() > ends))
            else:
                self.assertEqual(self.call("PATCH", path, change).status, 200)
            for stream in streams:
                self.assertSignedOut(stream)

    @long("takes a second or more")
    def test_loweredRole(self) -> None:
        """A stream ends that its key may not have any more; its requests are its own then."""
        account = self.issueKey("auditor")
        path = f"keys/{account.accessKey}"
        self.assertEqual(self.call("PATCH", path, {"role": "auditor"}).status, 200)
        self.assertTrue(eventually(lambda: self.open("topics=health", account).status == 200))
        stream = self.open("topics=health", account)
        self.assertEqual(self.call("PATCH", path, {"role": "none"}).status, 200)
        self.assertSignedOut(stream)

    def test_mostStreams(self) -> None:
        """The seventeenth stream is refused, until one ends."""
        with ExitStack() as open_:
            streams = [open_.enter_context(self.open("topics=jobs")) for _ in range(16)]
            self.assertEqual({each.status for each in streams}, {200})
            refused = self.open("topics=jobs")
            self.assertEqual((refused.status, refused.body()["error"]), (429, "RATE_LIMITED"))
            streams[3].close()
            self.assertTrue(eventually(lambda: self.open("topics=jobs").status == 200))

    def test_mostOfAKey(self) -> None:
        """A key without a role leaves a quarter of the streams to others."""
        account = self.issueKey("greedy")
        with ExitStack() as open_:
            streams = [open_.enter_context(self.open(account=account)) for _ in range(12)]
            self.assertEqual({each.status for each in streams}, {200})
            refused = self.open(account=account)
            self.assertEqual(refused.status, 429)
            self.assertEqual(refused.body()["error"], "RATE_LIMITED")
            self.assertEqual(open_.enter_context(self.open("topics=jobs")).status, 200)

    @long("takes seconds")
    def test_behind(self) -> None:
        """A client that does not read makes no memory grow; what it misses is counted."""
        bucket = self.makeBucket()
        stream = self.open(
            f"topics=requests&bucket={bucket}&operation=HeadObject", receiveBytes=65536
        )
        # As JSON each is 6 kB: all are more than the stream and the sockets hold, 4 MB each.
        path = f"/{bucket}/{'%01' * 1000}"
        client = HTTPConnection(*self.address, timeout=60)
        self.addCleanup(client.close)
        for _ in range(_BEHIND):
            client.request("HEAD", path, headers=ROOT.plainHeaders())
            client.getresponse().read()
        received = dropped = 0
        end = monotonic() + 240
        for name, document in stream:
            received += name == "requests"
            if name == "dropped":
                dropped = document["total"]
            if received + dropped == _BEHIND or monotonic() > end:
                break
        self.assertGreater(dropped, 0, received)
        self.assertGreater(received, MIB // 6500)
        self.assertEqual(received + dropped, _BEHIND)
        # The events of a second are bounded: the next test is to have one of its own.
        over = monotonic() + 1.0
        self.assertTrue(eventually(lambda: monotonic() > over))
