"""The requests of the S3 cases, their signatures, and the judgement of a run of blast."""

import json
from datetime import UTC, datetime
from urllib.parse import quote

from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotocoreCredentials
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from bench.growth.keyfill import credentialsOf, keyOf, signWithKeys
from bench.growth.recipe import policyOf
from bench.loads import Latency, Outcome
from bench.s3 import requests, signing
from bench.s3.recipe import doubtsOf, seenOf
from storagegate.objects.access.policy import compilePolicy
from tests.support.selection import long, rounds

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
PAIR = signing.Credentials("ACCESS", "secret")


def outcome(**changes: object) -> Outcome:
    """Make the report of a thousand good answers in two seconds."""
    fields: dict[str, object] = {
        "issued": 1000,
        "done": 1000,
        "bad": 0,
        "lost": 0,
        "reconnects": 0,
        "laps": 0,
        "seconds": 2.0,
        "received": 5_000_000,
        "sent": 100_000,
        "clientCpu": 0.25,
        "lastBadStatus": 0,
        "tags": {"0": Latency(1000, 1.5, 4.0, 9.0)},
    }
    return Outcome(**{**fields, **changes})  # type: ignore[arg-type]


class SigningTests(SynchronousTestCase):
    """Requests are signed as S3 clients sign them."""

    @settings(max_examples=rounds(12, 60), deadline=None)
    @given(
        method=st.sampled_from(["GET", "PUT", "HEAD", "DELETE"]),
        path=st.from_regex(r"/[a-z0-9-]{3,9}(/[A-Za-z0-9_.~-]{1,9}){0,3}", fullmatch=True),
        query=st.dictionaries(st.text("abcXY-z", min_size=1), st.text("a/ +&=~-é"), max_size=4),
    )
    @long("takes seconds")
    def test_signatureIsBotocores(self, method: str, path: str, query: dict[str, str]) -> None:
        """For any request the signature is the one that botocore computes."""
        request = signing.Request(method, path, tuple(query.items()))
        ours = signing.signer(PAIR, NOW)(request, "127.0.0.1:9000")
        text = "&".join(f"{quote(k, safe='~')}={quote(v, safe='~')}" for k, v in query.items())
        theirs = AWSRequest(method, f"http://127.0.0.1:9000{path}" + (f"?{text}" if text else ""))
        theirs.headers["X-Amz-Content-SHA256"] = signing.PAYLOAD
        theirs.headers["X-Amz-Date"] = ours["x-amz-date"]
        theirs.context["timestamp"] = ours["x-amz-date"]
        auth = S3SigV4Auth(BotocoreCredentials("ACCESS", "secret"), "s3", "us-east-1")
        expected = auth.signature(
            auth.string_to_sign(theirs, auth.canonical_request(theirs)), theirs
        )
        self.assertEqual(ours["Authorization"].rpartition("=")[2], expected)

    def test_otherServices(self) -> None:
        """A call to another service signs the hash of no body, and a temporary key its token."""
        pair = signing.Credentials("ACCESS", "secret", "token")
        request = signing.Request("GET", "/", (("Action", "GetSessionToken"),))
        ours = signing.signer(pair, NOW, "sts")(request, "127.0.0.1:9000")
        theirs = AWSRequest("GET", "http://127.0.0.1:9000/?Action=GetSessionToken")
        for name in ("x-amz-content-sha256", "x-amz-date"):
            theirs.headers[name] = ours[name]
        theirs.headers["X-Amz-Security-Token"] = "token"
        theirs.context["timestamp"] = ours["x-amz-date"]
        auth = SigV4Auth(BotocoreCredentials("ACCESS", "secret", "token"), "sts", "us-east-1")
        expected = auth.signature(
            auth.string_to_sign(theirs, auth.canonical_request(theirs)), theirs
        )
        self.assertEqual(ours["Authorization"].rpartition("=")[2], expected)
        self.assertNotIn("token'", repr(pair))

    def test_head(self) -> None:
        """A head holds the request line, Host, length and type of the body, and no more."""
        request = signing.Request("PUT", "/b/k", (("partNumber", "1"), ("a", "b c")), length=5)
        self.assertEqual(
            signing.encodeHead(request, "h:1", signing.anonymous),
            b"PUT /b/k?a=b%20c&partNumber=1 HTTP/1.1\r\nHost: h:1\r\nContent-Length: 5\r\n"
            b"Content-Type: application/octet-stream\r\n\r\n",
        )

    def test_keyHeaders(self) -> None:
        """A large fill sends the key pair itself; the pair is not printed."""
        head = signing.encodeHead(signing.Request("GET", "/b"), "h", signing.keyHeaders(PAIR))
        self.assertIn(b"\r\nx-storage-access-key: ACCESS\r\nx-storage-secret-key: secret\r\n", head)
        self.assertNotIn("secret'", repr(PAIR))

    def test_keys(self) -> None:
        """Each of a thousand keys signs the requests that its policy allows."""
        key = keyOf(345)
        self.assertEqual((key.bucketPattern, key.prefixPattern), ("benc?", "?/*-???345"))
        fields = signWithKeys(signing.Request("GET", "/bench/k/4k-012345"), "h")
        self.assertIn(f"Credential={credentialsOf(345).access}/", fields["Authorization"])


class WorkTests(SynchronousTestCase):
    """The requests of a work."""

    def test_fresh(self) -> None:
        """Two measurements that write share no name."""
        first, second = (
            {each.path for each in requests.requestsOf(requests.PUT4K, nonce)} for nonce in "ab"
        )
        self.assertEqual(len(first), requests.PUT4K.keys)
        self.assertFalse(first & second)

    def test_stored(self) -> None:
        """Each read, and each write of a mixture, is of an object that was filled in."""
        for kind in ("get", "head", "mixed", "overwrite"):
            work = requests.Work(kind, 50)
            paths = {each.path for each in requests.requestsOf(work, "")}
            self.assertLessEqual(paths, set(requests.storedPaths(work)), kind)

    def test_mixture(self) -> None:
        """A mixture is 70 reads to 30 writes with a tag of their own, always the same."""
        work = requests.Work("mixed", 1_000)
        found = requests.requestsOf(work, "a")
        writes = [each for each in found if each.method == "PUT"]
        self.assertApproximates(len(writes) / len(found), 0.3, 0.02)
        self.assertEqual({each.tag for each in writes}, {1})
        self.assertEqual(found, requests.requestsOf(work, "b"))

    def test_listed(self) -> None:
        """The keys of a bucket are in order, and a delimiter makes groups of a thousand."""
        keys = list(requests.listedKeys(20_000))
        self.assertEqual(keys, sorted(set(keys)))
        self.assertEqual(len({key.partition("-")[0] for key in keys}), 20)
        work = requests.Work("list", 1_000_000, delimiter="-")
        [request] = requests.requestsOf(work, "")
        target = "/list-1000000?delimiter=-&list-type=2&max-keys=1000"
        self.assertEqual(signing.targetOf(request), target)

    def test_policy(self) -> None:
        """A policy has as many statements as asked, and the store accepts it."""
        for count in (1, 20):
            document = policyOf(count)
            compilePolicy(document, "bench")
            self.assertEqual(len(json.loads(document)["Statement"]), count)


class OutcomeTests(SynchronousTestCase):
    """The judgement of a run."""

    def test_seen(self) -> None:
        """Rates and latencies are those that blast saw."""
        seen = seenOf(requests.GET4K, outcome())
        self.assertEqual((seen.requests, seen.seconds, seen.received), (1000, 2.0, 5_000_000))
        self.assertEqual((seen.p50Ms, seen.p99Ms, seen.clientSeconds), (1.5, 4.0, 0.5))
        self.assertEqual(seen.doubts, ())

    def test_doubts(self) -> None:
        """Bad, lost and short answers, and names that repeat, are doubts."""
        for work, changes, doubt in (
            (requests.GET4K, {"bad": 1, "lastBadStatus": 503}, "1 bad (503), 0 lost"),
            (requests.GET4K, {"lost": 2}, "0 bad (0), 2 lost"),
            (requests.GET4K, {"received": 4000}, "answers were short"),
            (requests.PUT4K, {"laps": 1}, "names repeated"),
        ):
            self.assertEqual(doubtsOf(work, outcome(**changes)), (doubt,))
        self.assertEqual(doubtsOf(requests.GET4K, outcome(laps=1)), ())

    def test_mixture(self) -> None:
        """The answers to the writes of a mixture have no bytes, and that is no doubt."""
        tags = {"0": Latency(700, 1, 1, 1), "1": Latency(300, 1, 1, 1)}
        seen = outcome(tags=tags, received=700 * 4096)
        self.assertEqual(doubtsOf(requests.Work("mixed", 1_000), seen), ())
