"""Rules of cross-origin access: the document, its limits, and header fields."""

from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.cors import CORSRule, findRule
from storagegate.s3.handlers.cors import parseRequested, ruleFields
from storagegate.s3.xml.reader import BUCKET_LIMIT
from tests.s3.refusals import refusalOf
from tests.s3.settingdocuments import readCORS, writeCORS


def configuration(*rules: str) -> bytes:
    """Write a document of rules."""
    inner = "".join(f"<CORSRule>{rule}</CORSRule>" for rule in rules)
    return f"<CORSConfiguration>{inner}</CORSConfiguration>".encode()


def rule(more: str = "", origin: str = "*", method: str = "GET") -> str:
    """Write the inside of a rule."""
    return f"<AllowedOrigin>{origin}</AllowedOrigin><AllowedMethod>{method}</AllowedMethod>{more}"


class ReadTests(SynchronousTestCase):
    """The document."""

    def refuse(self, code: str, body: bytes) -> str:
        """Check the code; return the message."""
        error = refusalOf(readCORS, body)
        self.assertEqual((error.code, error.status), (code, 400))
        return error.message

    def test_all(self) -> None:
        """All elements are read, in a namespace or none, and written in one order."""
        body = (
            b'<CORSConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><CORSRule>'
            b"<ID>one</ID><AllowedOrigin>https://*.example.com</AllowedOrigin>"
            b"<AllowedOrigin>http://a</AllowedOrigin><AllowedMethod>PUT</AllowedMethod>"
            b"<AllowedMethod>HEAD</AllowedMethod><AllowedHeader>x-amz-*</AllowedHeader>"
            b"<MaxAgeSeconds> 3000 </MaxAgeSeconds><ExposeHeader>ETag</ExposeHeader></CORSRule>"
            b"</CORSConfiguration>"
        )
        expected = CORSRule(
            ("https://*.example.com", "http://a"), ("PUT", "HEAD"), ("x-amz-*",), ("ETag",), 3000
        )
        [found] = readCORS(body)
        self.assertEqual((found.id, found.maxAge), ("one", 3000))
        self.assertEqual(found.origins + found.methods, expected.origins + expected.methods)
        self.assertEqual(found.headers + found.exposed, expected.headers + expected.exposed)
        self.assertEqual(readCORS(writeCORS([found])), (found,))

    def test_malformed(self) -> None:
        """What is no such document."""
        for body in (
            b"",
            b"<",
            b"<CORSConfiguration/>",
            b"<Other><CORSRule/></Other>",
            b'<!DOCTYPE x [<!ENTITY e "e">]>' + configuration(rule()),
            configuration("<AllowedOrigin>*</AllowedOrigin>"),
            configuration("<AllowedMethod>GET</AllowedMethod>"),
            configuration(rule("<MaxAgeSeconds>-1</MaxAgeSeconds>")),
            configuration(rule("<MaxAgeSeconds>2147483648</MaxAgeSeconds>")),
            configuration(rule("<MaxAgeSeconds>1</MaxAgeSeconds><MaxAgeSeconds>1</MaxAgeSeconds>")),
            configuration(rule("<AllowedHeaders>x-a</AllowedHeaders>")),
            configuration(rule()).replace(b"</CORSRule>", b"</CORSRule><Other/>"),
            configuration(rule()) + b" " * BUCKET_LIMIT,
        ):
            self.refuse("MalformedXML", body)

    def test_invalid(self) -> None:
        """What is well-formed and not allowed."""
        for word, body in (
            ("PATCH", configuration(rule(method="PATCH"))),
            ("get", configuration(rule(method="get"))),
            ('"*.*"', configuration(rule(origin="*.*"))),
            ("not an origin", configuration(rule(origin="a\r\nSet-Cookie: x"))),
            ("not an origin", configuration(rule(origin=""))),
            ('"a**"', configuration(rule("<AllowedHeader>a**</AllowedHeader>"))),
            ('"a b"', configuration(rule("<AllowedHeader>a b</AllowedHeader>"))),
            ('"x-*"', configuration(rule("<ExposeHeader>x-*</ExposeHeader>"))),
            ("255", configuration(rule(f"<ID>{'i' * 256}</ID>"))),
            ("unique", configuration(rule("<ID>i</ID>"), rule("<ID>i</ID>"))),
            ("100", configuration(*[rule()] * 101)),
        ):
            self.assertIn(word, self.refuse("InvalidRequest", body))
        self.assertEqual(len(readCORS(configuration(*[rule()] * 100))), 100)


class FieldTests(SynchronousTestCase):
    """Header fields of requests and responses."""

    rules = (
        CORSRule(("https://a.example",), ("PUT",), ("content-*", "X-Amz-Date"), ("ETag",), 60),
        CORSRule(("http://*.example",), ("GET", "HEAD"), ("*",)),
        CORSRule(("*",), ("GET",)),
    )

    def test_manyHeaders(self) -> None:
        """Names count once; no rule allows more than 100 of them, which would take long."""
        allowing = [CORSRule(("*",), ("GET",), ("*",))]
        for count, repeats, isAllowed in ((100, 1, True), (100, 50, True), (101, 1, False)):
            names = ",".join(f"X-{number}" for number in range(count)) + ","
            requested = parseRequested((names * repeats).encode())
            found = findRule(allowing, "http://a", "GET", requested)
            self.assertEqual((len(requested), found is not None), (count, isAllowed))

    def test_fields(self) -> None:
        """Credentials only for an origin with a name; the origin is the request's."""
        first = dict(ruleFields(self.rules[0], "https://a.example", ["content-md5"]))
        self.assertEqual(
            first,
            {
                b"Access-Control-Allow-Origin": b"https://a.example",
                b"Access-Control-Allow-Methods": b"PUT",
                b"Access-Control-Allow-Headers": b"content-md5",
                b"Access-Control-Expose-Headers": b"ETag",
                b"Access-Control-Max-Age": b"60",
                b"Access-Control-Allow-Credentials": b"true",
                b"Vary": b"Origin, Access-Control-Request-Headers, Access-Control-Request-Method",
            },
        )
        second = dict(ruleFields(self.rules[1], "http://b.example", []))
        self.assertEqual(second[b"Access-Control-Allow-Origin"], b"http://b.example")
        third = dict(ruleFields(self.rules[2], "http://other", []))
        self.assertEqual(third[b"Access-Control-Allow-Origin"], b"*")
        self.assertNotIn(b"Access-Control-Allow-Credentials", third)
