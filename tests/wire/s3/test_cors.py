"""Cross-origin access to buckets: boto3, preflight requests, and answers to pages."""

import json
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from tests.support.browser import Browser
from tests.support.documents import DOCS, codeBlocks
from tests.support.programs import needs
from tests.support.s3signer import Answer, Outgoing
from tests.support.selection import long
from tests.wire.s3.fixture import S3Case

ORIGIN = "https://app.example"
RULES: dict[str, Any] = {
    "CORSRules": [
        {
            "ID": "upload",
            "AllowedOrigins": ["https://*.example"],
            "AllowedMethods": ["PUT", "GET"],
            "AllowedHeaders": ["content-*", "x-amz-*"],
            "ExposeHeaders": ["ETag"],
            "MaxAgeSeconds": 600,
        },
        {"AllowedOrigins": ["*"], "AllowedMethods": ["GET"]},
    ]
}


class CORSCase(S3Case):
    """A bucket with rules."""

    def setUp(self) -> None:
        """Make the bucket, and set them."""
        super().setUp()
        self.bucket = self.makeBucket()
        self.s3.put_bucket_cors(Bucket=self.bucket, CORSConfiguration=RULES)

    def preflight(self, target: str, **headers: str) -> Answer:
        """Send OPTIONS without credentials."""
        return self.send(Outgoing("OPTIONS", target).adding(**headers))


class ConfigurationTests(CORSCase):
    """The setting itself."""

    def test_life(self) -> None:
        """It is read as it was set, replaced as a whole, and removed."""
        self.assertEqual(
            self.s3.get_bucket_cors(Bucket=self.bucket)["CORSRules"], RULES["CORSRules"]
        )
        one = {"CORSRules": RULES["CORSRules"][1:]}
        self.s3.put_bucket_cors(Bucket=self.bucket, CORSConfiguration=one)
        self.assertEqual(self.s3.get_bucket_cors(Bucket=self.bucket)["CORSRules"], one["CORSRules"])
        for _ in range(2):
            gone = self.s3.delete_bucket_cors(Bucket=self.bucket)
            self.assertEqual(gone["ResponseMetadata"]["HTTPStatusCode"], 204)
        self.assertRefused(
            404, "NoSuchCORSConfiguration", self.s3.get_bucket_cors, Bucket=self.bucket
        )

    def test_refused(self) -> None:
        """What is wrong changes nothing."""
        for wrong in (
            {"AllowedOrigins": ["*"], "AllowedMethods": ["PATCH"]},
            {"AllowedOrigins": ["*.*"], "AllowedMethods": ["GET"]},
        ):
            self.assertRefused(
                400,
                "InvalidRequest",
                self.s3.put_bucket_cors,
                Bucket=self.bucket,
                CORSConfiguration={"CORSRules": [wrong]},
            )
        self.assertEqual(len(self.s3.get_bucket_cors(Bucket=self.bucket)["CORSRules"]), 2)

    def test_documented(self) -> None:
        """The rules of the documentation."""
        [example] = [
            each.code for each in codeBlocks(DOCS / "s3.rst", "json") if "CORS" in each.code
        ]
        rules = json.loads(example)
        self.s3.put_bucket_cors(Bucket=self.bucket, CORSConfiguration=rules)
        found = self.s3.get_bucket_cors(Bucket=self.bucket)["CORSRules"]
        self.assertEqual(found, rules["CORSRules"])

    def test_s3cmd(self) -> None:
        """C{s3cmd setcors} and C{delcors}."""
        s3cmd, target = self.s3cmd(), f"s3://{self.bucket}"
        document = self.makeDirectory() / "cors.xml"
        document.write_text(
            "<CORSConfiguration><CORSRule><AllowedOrigin>*</AllowedOrigin>"
            "<AllowedMethod>GET</AllowedMethod></CORSRule></CORSConfiguration>"
        )
        s3cmd("setcors", document, target)
        found = self.s3.get_bucket_cors(Bucket=self.bucket)["CORSRules"]
        self.assertEqual(found, [{"AllowedOrigins": ["*"], "AllowedMethods": ["GET"]}])
        self.assertIn("AllowedOrigin", s3cmd("info", target))
        s3cmd("delcors", target)
        self.assertRefused(
            404, "NoSuchCORSConfiguration", self.s3.get_bucket_cors, Bucket=self.bucket
        )

    def test_long(self) -> None:
        """A document of more than 64 KiB is refused before it is read."""
        target = f"/{self.bucket}?cors"
        answer = self.sendSigned(Outgoing("PUT", target, body=b" " * (64 * 1024 + 1)))
        self.assertAnswer(answer, 400, "MaxMessageLengthExceeded")

    @long("takes a second or more")
    def test_others(self) -> None:
        """An account that does not own the bucket neither reads nor sets it."""
        other = self.impatient(self.issueKey("foreign"))
        self.assertRefused(403, "AccessDenied", other.get_bucket_cors, Bucket=self.bucket)
        self.assertRefused(
            403,
            "AccessDenied",
            other.put_bucket_cors,
            Bucket=self.bucket,
            CORSConfiguration=RULES,
        )
        self.assertRefused(403, "AccessDenied", other.delete_bucket_cors, Bucket=self.bucket)


class PreflightTests(CORSCase):
    """OPTIONS, which browsers do not sign."""

    def test_allowed(self) -> None:
        """What a rule allows, with all that it says."""
        for target in f"/{self.bucket}/a/key", f"/{self.bucket}":
            answer = self.preflight(
                target,
                Origin=ORIGIN,
                Access_Control_Request_Method="PUT",
                Access_Control_Request_Headers="Content-Type, x-amz-date",
            )
            self.assertEqual((answer.status, answer.body), (200, b""))
            found = {n: v for n, v in answer.headers.items() if n.startswith("access-control")}
            self.assertEqual(
                found,
                {
                    "access-control-allow-origin": ORIGIN,
                    "access-control-allow-methods": "PUT, GET",
                    "access-control-allow-headers": "content-type, x-amz-date",
                    "access-control-expose-headers": "ETag",
                    "access-control-max-age": "600",
                    "access-control-allow-credentials": "true",
                },
            )
            self.assertIn("Origin", answer.headers["vary"])

    def test_everybody(self) -> None:
        """A rule for all origins allows no credentials."""
        answer = self.preflight(
            f"/{self.bucket}/k", Origin="http://other", Access_Control_Request_Method="GET"
        )
        self.assertEqual(answer.headers["access-control-allow-origin"], "*")
        self.assertNotIn("access-control-allow-credentials", answer.headers)

    def test_incomplete(self) -> None:
        """Without an origin or a method there is nothing to judge."""
        target = f"/{self.bucket}/k"
        self.assertAnswer(self.preflight(target), 400, "BadRequest")
        self.assertAnswer(self.preflight(target, Origin=ORIGIN), 400, "BadRequest")

    def test_forbidden(self) -> None:
        """What no rule allows, and where there is none; nothing tells more."""
        ask = {"Origin": ORIGIN, "Access_Control_Request_Method": "DELETE"}
        self.assertAnswer(self.preflight(f"/{self.bucket}/k", **ask), 403, "AccessForbidden")
        header = {
            **ask,
            "Access_Control_Request_Method": "PUT",
            "Access_Control_Request_Headers": "authorization",
        }
        self.assertAnswer(self.preflight(f"/{self.bucket}/k", **header), 403, "AccessForbidden")
        for target in f"/{self.makeBucket()}/k", f"/{self.makeName()}/k", "/":
            answer = self.preflight(target, **ask)
            self.assertAnswer(answer, 403, "AccessForbidden")
            self.assertNotIn("access-control-allow-origin", answer.headers)

    def test_current(self) -> None:
        """A change counts from its response on."""
        ask = {"Origin": "http://other", "Access_Control_Request_Method": "GET"}
        for _ in range(5):
            self.s3.delete_bucket_cors(Bucket=self.bucket)
            self.assertEqual(self.preflight(f"/{self.bucket}", **ask).status, 403)
            self.s3.put_bucket_cors(Bucket=self.bucket, CORSConfiguration=RULES)
            self.assertEqual(self.preflight(f"/{self.bucket}", **ask).status, 200)


class ResponseTests(CORSCase):
    """Real requests of pages."""

    def test_objects(self) -> None:
        """The response to a write, a read, a range and a missing key names the origin."""
        target = f"/{self.bucket}/k"
        put = self.sendSigned(Outgoing("PUT", target, {"Origin": ORIGIN}, b"x" * 100))
        get = self.sendSigned(Outgoing("GET", target, {"Origin": ORIGIN}))
        part = self.sendSigned(Outgoing("GET", target, {"Origin": ORIGIN, "Range": "bytes=1-2"}))
        none = self.sendSigned(Outgoing("GET", target + "2", {"Origin": ORIGIN}))
        self.assertEqual([each.status for each in (put, get, part, none)], [200, 200, 206, 404])
        for answer in put, get, part, none:
            self.assertEqual(answer.headers["access-control-allow-origin"], ORIGIN)
            self.assertEqual(answer.headers["access-control-expose-headers"], "ETag")
            self.assertIn("Origin", answer.headers["vary"])

    def test_requestedHeaders(self) -> None:
        """A request that names header fields is answered with those that its rule allows."""
        asked = {"Origin": ORIGIN, "Access-Control-Request-Headers": "X-Amz-Date, content-type"}
        target = f"/{self.bucket}/k"
        for method in ("PUT", "GET"):
            answer = self.sendSigned(Outgoing(method, target, asked))
            allowed = answer.headers["access-control-allow-headers"]
            self.assertEqual(allowed, "x-amz-date, content-type")
        asked["Access-Control-Request-Headers"] = "x-other"
        answer = self.sendSigned(Outgoing("GET", target, asked))
        self.assertEqual(answer.headers["access-control-allow-origin"], ORIGIN)
        self.assertNotIn("access-control-allow-headers", answer.headers)

    def test_requestedMethod(self) -> None:
        """A request that names a method is answered by the rule of that method, as in S3."""
        target = f"/{self.bucket}/k"
        for method, named, isAllowed in (
            ("DELETE", "GET", True),
            ("DELETE", "DELETE", False),
            ("DELETE", "", False),
            ("GET", "DELETE", False),
        ):
            fields = {"Origin": ORIGIN}
            if named:
                fields["Access-Control-Request-Method"] = named
            answer = self.send(Outgoing(method, target, fields))
            self.assertEqual(answer.status, 403)
            found = "access-control-allow-origin" in answer.headers
            self.assertEqual(found, isAllowed, (method, named))

    def test_errors(self) -> None:
        """A refusal, too: a page could not read its reason."""
        answer = self.send(Outgoing("GET", f"/{self.bucket}/k", {"Origin": ORIGIN}))
        self.assertEqual(answer.status, 403)
        self.assertEqual(answer.headers["access-control-allow-origin"], ORIGIN)

    def test_noRule(self) -> None:
        """Requests that no rule matches, and those without an origin, are as ever."""
        for headers in {"Origin": "http://other"}, {}:
            answer = self.sendSigned(Outgoing("DELETE", f"/{self.bucket}/k", headers))
            self.assertEqual(answer.status, 204)
            self.assertNotIn("access-control-allow-origin", answer.headers)
        plain = self.sendSigned(Outgoing("GET", f"/{self.makeBucket()}", {"Origin": ORIGIN}))
        self.assertEqual(plain.status, 200)
        self.assertNotIn("access-control-allow-origin", plain.headers)


class _Pages(SimpleHTTPRequestHandler):
    """Pages of a directory."""

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing."""


@needs("chromium")
class BrowserTests(S3Case):
    """A page in Chromium, of another origin than the daemon's."""

    fetch = (
        "fetch({url!r}, {options}).then(async r => r.status + ' ' + r.headers.get('ETag') + ' '"
        " + await r.text(), error => 'blocked')"
    )

    @long("takes a second or more")
    def test_upload(self) -> None:
        """It stores and reads an object with presigned URLs once the rules allow it, not before."""
        bucket = self.makeBucket()
        directory = self.makeDirectory("pages")
        (directory / "index.html").write_text("<p>empty")
        handler = partial(_Pages, directory=str(directory))
        pages = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.addCleanup(pages.server_close)
        self.addCleanup(pages.shutdown)
        Thread(target=pages.serve_forever, daemon=True).start()
        origin = f"http://127.0.0.1:{pages.server_address[1]}"
        target = {"Bucket": bucket, "Key": "note"}
        put = self.s3.generate_presigned_url(
            "put_object", Params={**target, "ContentType": "text/x-note"}
        )
        get = self.s3.generate_presigned_url("get_object", Params=target)
        with Browser() as browser:
            browser.open(origin)
            browser.wait(f"location.origin == {origin!r}")
            store = self.fetch.format(
                url=put,
                options="{method: 'PUT', headers: {'Content-Type': 'text/x-note'},"
                " body: 'written by a page'}",
            )
            self.assertEqual(browser.evaluate(store), "blocked")
            self.assertMissing(bucket, "note")
            rule = {
                "AllowedOrigins": [origin],
                "AllowedMethods": ["PUT", "GET"],
                "AllowedHeaders": ["content-type"],
                "ExposeHeaders": ["ETag"],
            }
            self.s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": [rule]})
            etag = browser.evaluate(store).split()[1]
            self.assertEqual(etag, self.s3.head_object(**target)["ETag"])
            read = self.fetch.format(url=get, options="{}")
            self.assertEqual(browser.evaluate(read), f"200 {etag} written by a page")
