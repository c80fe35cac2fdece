"""Attacks through XML bodies, listing parameters and headers that an answer is asked to carry."""

import base64
import hashlib
from urllib.parse import quote

from tests.support.s3signer import Answer, Outgoing
from tests.support.selection import long
from tests.wire.s3.attacks import AttackCase

BOMB = (
    b'<?xml version="1.0"?><!DOCTYPE lol [<!ENTITY a "aaaaaaaaaa">'
    b'<!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]>'
    b"<Delete><Object><Key>&c;</Key></Object></Delete>"
)
FILE_ENTITY = (
    b'<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
    b"<Delete><Object><Key>&x;</Key></Object></Delete>"
)


def entries(count: int) -> bytes:
    """Write the document that deletes this many keys."""
    return b"<Delete>" + b"<Object><Key>none</Key></Object>" * count + b"</Delete>"


def parts(count: int) -> bytes:
    """Write the document that completes an upload of this many parts."""
    one = b'<Part><PartNumber>%d</PartNumber><ETag>"0"</ETag></Part>'
    listed = b"".join(one % number for number in range(1, count + 1))
    return b"<CompleteMultipartUpload>" + listed + b"</CompleteMultipartUpload>"


class XMLAttackTests(AttackCase):
    """Documents that are too much, or none."""

    def post(self, target: str, document: bytes) -> tuple[int, str]:
        """Send a document with its digest; tell how it was answered."""
        digest = base64.b64encode(hashlib.md5(document, usedforsecurity=False).digest())
        headers = {"Content-MD5": digest.decode()}
        answer = self.sendSigned(Outgoing("POST", target, headers, document))
        self.assertNotIn(b"root:", answer.body)
        return answer.status, answer.code

    def test_badDocuments(self) -> None:
        """Entities, depth, other roots, other encodings and no XML at all are C{MalformedXML}."""
        for name, document in (
            ("entities", BOMB),
            ("file", FILE_ENTITY),
            ("doctype", b"<!DOCTYPE Delete>" + entries(1)),
            ("remote", b'<!DOCTYPE d SYSTEM "http://127.0.0.1:1/x.dtd">' + entries(1)),
            ("depth", b"<Delete>" + b"<a>" * 200_000),
            ("closed depth", b"<Delete>" + b"<a>" * 20_000 + b"</a>" * 20_000 + b"</Delete>"),
            ("other root", b"<Object><Key>held</Key></Object>"),
            ("not closed", b"<Delete><Object><Key>held</Key></Object>"),
            ("no XML", b"held"),
            ("no entries", b"<Delete></Delete>"),
            ("no key", b"<Delete><Object></Object></Delete>"),
            ("two roots", entries(1) * 2),
            ("NUL", b"<Delete><Object><Key>he\x00ld</Key></Object></Delete>"),
            ("not UTF-8", b"<Delete><Object><Key>he\xffld</Key></Object></Delete>"),
            ("1001 entries", entries(1001)),
        ):
            self.assertEqual(
                self.post(f"/{self.bucket}?delete=", document), (400, "MalformedXML"), name
            )
        empty = self.post(f"/{self.bucket}?delete=", b"")
        self.assertEqual(empty, (400, "MissingRequestBodyError"))
        self.assertUntouched()

    def test_mostEntries(self) -> None:
        """1000 entries are not too many."""
        status, _ = self.post(f"/{self.bucket}?delete=", entries(1000))
        self.assertEqual(status, 200)

    def test_unknownElements(self) -> None:
        """Elements that nobody knows, and a namespace, are passed over."""
        document = (
            b'<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Future><x/></Future>'
            b"<Object><Key>other</Key><Later>1</Later></Object></Delete>"
        )
        status, _ = self.post(f"/{self.bucket}?delete=", document)
        self.assertEqual(status, 200)
        self.assertUntouched()

    def test_tooManyParts(self) -> None:
        """10,001 parts are refused, and the upload stays as it was."""
        upload = self.s3.create_multipart_upload(Bucket=self.bucket, Key="k")["UploadId"]
        target = self.target("k", f"uploadId={upload}")
        for document in (parts(10_001), parts(0), BOMB, b"<a>" * 200_000):
            self.assertEqual(self.post(target, document), (400, "MalformedXML"))
        self.s3.abort_multipart_upload(Bucket=self.bucket, Key="k", UploadId=upload)

    @long("takes seconds")
    def test_tooLarge(self) -> None:
        """20 MB where a document is due are refused, whatever they are."""
        upload = self.s3.create_multipart_upload(Bucket=self.bucket, Key="k")["UploadId"]
        padding = b" " * 20_000_000
        for target in (
            f"/{self.bucket}?delete=",
            self.target("k", f"uploadId={upload}"),
        ):
            status, _ = self.post(target, padding + entries(1))
            self.assertIn(status, (400, 413))
        made = self.sendSigned(Outgoing("PUT", f"/{self.makeName()}", {}, padding))
        self.assertIn(made.status, (400, 413))
        self.s3.abort_multipart_upload(Bucket=self.bucket, Key="k", UploadId=upload)
        self.assertUntouched()

    def test_location(self) -> None:
        """A new bucket's document is read as strictly."""
        for document in (BOMB, b"<a>" * 10_000, b"eu-west-1"):
            name = self.makeName("never")
            answer = self.sendSigned(Outgoing("PUT", f"/{name}", {}, document))
            self.assertAnswer(answer, 400, "MalformedXML")
            self.assertRefused(404, "404", self.s3.head_bucket, Bucket=name)


class ListingAttackTests(AttackCase):
    """Parameters of lists."""

    def setUp(self) -> None:
        """Have a few keys, and a token of the list's middle."""
        super().setUp()
        self.listed = self.makeBucket("listed")
        for number in range(4):
            self.s3.put_object(Bucket=self.listed, Key=f"listed{number}", Body=b"x")
        page = self.s3.list_objects_v2(Bucket=self.listed, MaxKeys=2)
        self.token = page["NextContinuationToken"]

    def list(self, bucket: str, **parameters: str) -> Answer:
        """List with these parameters; an underscore in a name stands for a hyphen."""
        pairs = [
            f"{name.replace('_', '-')}={quote(value, safe='-_.~')}"
            for name, value in parameters.items()
        ]
        return self.sendSigned(Outgoing("GET", f"/{bucket}?{'&'.join(pairs)}"))

    def assertInvalid(self, bucket: str, **parameters: str) -> None:
        """Check that a list with these parameters is refused."""
        answer = self.list(bucket, **parameters)
        self.assertEqual((answer.status, answer.code), (400, "InvalidArgument"), parameters)

    def test_tokens(self) -> None:
        """A token is good for its bucket, as it was given, and tells nothing."""
        found = self.s3.list_objects_v2(Bucket=self.listed, ContinuationToken=self.token)
        self.assertEqual([entry["Key"] for entry in found["Contents"]], ["listed2", "listed3"])
        # A short name would stand in a random text by chance.
        self.assertNotIn("listed1", self.token)
        self.assertInvalid(self.bucket, continuation_token=self.token, list_type="2")
        for place in (0, len(self.token) // 2, len(self.token) - 1):
            other = "A" if self.token[place] != "A" else "B"
            changed = self.token[:place] + other + self.token[place + 1 :]
            self.assertInvalid(self.listed, continuation_token=changed, list_type="2")
        for token in ("listed1", "AAAA", "!", "\u00e4", self.token * 2, self.token[:-4]):
            self.assertInvalid(self.listed, continuation_token=token, list_type="2")
            self.assertInvalid(self.listed, continuation_token=token)

    def test_maxKeys(self) -> None:
        """C{max-keys} is a whole number from 0 on; what is over 1000 counts as 1000."""
        for value in ("-1", "abc", "1.5", "+1", "1_0", "0x10", "1e3", " ", "\u0663"):
            self.assertInvalid(self.listed, max_keys=value)
        for value in ("0", "1", "1000", "1001", "1000000000"):
            self.assertEqual(self.list(self.listed, max_keys=value).status, 200, value)

    def test_otherParameters(self) -> None:
        """Values that a parameter cannot have are refused, not guessed at."""
        self.assertInvalid(self.listed, encoding_type="base64")
        self.assertInvalid(self.listed, uploads="", max_uploads="-1")
        self.assertInvalid(self.listed, versions="", max_keys="x")

    def test_hostileNames(self) -> None:
        """Prefix, delimiter and marker are data: what looks like SQL or XML finds nothing."""
        for value in ("' OR 1=1--", "%", "_", "</Prefix><x>", "\0", "k*", "k%", "\\"):
            for version, name in (("2", "start_after"), ("2", "delimiter"), ("1", "marker")):
                answer = self.list(self.listed, list_type=version, **{name: value})
                self.assertEqual(answer.status, 200, (name, value, answer))
            none = self.list(self.listed, list_type="2", prefix=value)
            self.assertEqual(none.status, 200, (value, none))
            self.assertNotIn(b"<Contents>", none.body)
            self.assertNotIn(b"<x>", none.body)


class ResponseHeaderAttackTests(AttackCase):
    """The headers that a reader may choose."""

    def test_unsigned(self) -> None:
        """Nobody chooses headers without a signature."""
        answer = self.send(Outgoing("GET", self.target(query="response-content-type=text%2Fhtml")))
        self.assertRejected(answer, (400, 403))

    def test_injection(self) -> None:
        """No value ends a header line: not one that is asked for, not one that is stored."""
        for name in ("content-type", "content-disposition", "cache-control", "expires"):
            for value in ("a%0D%0ASet-Cookie%3Ax%3D1", "a%0Ab", "a%0Db", "a%00b", "a%01b"):
                query = f"response-{name}={value}"
                answer = self.sendSigned(Outgoing("GET", self.target(query=query)))
                self.assertRejected(answer, (400,), query)
                self.assertNotIn("set-cookie", answer.headers)

    def test_noSniffing(self) -> None:
        """An object is what its type says, whatever it looks like."""
        self.assertEqual(
            self.sendSigned(Outgoing("GET", self.target())).headers["x-content-type-options"],
            "nosniff",
        )
