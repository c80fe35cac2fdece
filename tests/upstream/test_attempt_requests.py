"""What goes out to instances."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.context import ClientInfo, RequestContext, Tracing
from storagegate.core.errors import ServiceError
from storagegate.core.invoker import CallCredentials
from storagegate.upstream.attempt import RequestHeads
from storagegate.upstream.options import Instance

TRACE = "0123456789abcdef0123456789abcdef"


def head(
    protocol: str = "http",
    headers: dict[str, str] | None = None,
    credentials: CallCredentials | None = None,
    method: str = "ask",
    leftSeconds: float | None = None,
    length: int | None = 2,
    address: str = "192.0.2.7",
    state: str = "",
) -> tuple[str, dict[str, str]]:
    """Write a head; give its first line and its fields."""
    tracing = Tracing(TRACE, "00f067aa0ba902b7", True, state)
    context = RequestContext(
        protocol, "Pro.be", method, ClientInfo("id", address, 1), tracing, headers or {}
    )
    context.credentials = credentials or CallCredentials()
    context.credentials.hasFields = protocol in ("http", "grpc")
    heads = RequestHeads("/v1", "Pro.be", "X-API-Key")
    data = heads.write(Instance("10.0.0.1", 80), context, tracing, leftSeconds, length)
    first, *lines = data.decode("ascii").removesuffix("\r\n\r\n").split("\r\n")
    fields: dict[str, str] = dict(line.split(": ", 1) for line in lines)
    assert len(fields) == len(lines), lines
    return first, fields


class RequestHeadsTests(SynchronousTestCase):
    """Heads."""

    def test_unary(self) -> None:
        """A request has a length; who called, and in which trace, is passed on."""
        first, fields = head()
        self.assertEqual(first, "POST /v1/Pro.be/ask HTTP/1.1")
        self.assertEqual(
            fields,
            {
                "Host": "10.0.0.1:80",
                "Content-Type": "application/json",
                "Content-Length": "2",
                "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01",
                "X-Forwarded-For": "192.0.2.7",
                "X-Gateway-Hops": "1",
            },
        )

    def test_stream(self) -> None:
        """A stream of them has none."""
        _, fields = head(length=None)
        found = (fields["Content-Type"], fields["Transfer-Encoding"], "Content-Length" in fields)
        self.assertEqual(found, ("application/x-ndjson", "chunked", False))

    def test_deadline(self) -> None:
        """How long the caller waits is said in whole milliseconds, of which there is one left."""
        for seconds, ms in ((1.5, "1500"), (0.0001, "1"), (-1, "1"), (1e9, "86400000")):
            self.assertEqual(head(leftSeconds=seconds)[1]["X-Deadline-Ms"], ms)

    def test_fields(self) -> None:
        """Where the wire has fields for it, they are passed on as they were."""
        headers = {
            "authorization": "Basic abc",
            "x-api-key": "key",
            "x-forwarded-for": "198.51.100.1",
            "cookie": "a=b",
        }
        for protocol in ("http", "grpc"):
            _, fields = head(protocol, headers, CallCredentials("abc", "key"), state="a=1")
            self.assertEqual(fields["Authorization"], "Basic abc")
            self.assertEqual(fields["X-API-Key"], "key")
            self.assertEqual(fields["X-Forwarded-For"], "198.51.100.1, 192.0.2.7")
            self.assertEqual(fields["tracestate"], "a=1")
            self.assertNotIn("cookie", {name.lower() for name in fields})

    def test_messages(self) -> None:
        """The token of a message stands in both places, for it may be either."""
        headers = {"authorization": "of the handshake", "x-forwarded-for": "anything"}
        for protocol in ("websocket", "tcp", "udp"):
            _, fields = head(protocol, headers, CallCredentials("secret"))
            self.assertEqual(fields["Authorization"], "Bearer secret")
            self.assertEqual(fields["X-API-Key"], "secret")
            self.assertEqual(fields["X-Forwarded-For"], "192.0.2.7")
            self.assertNotIn("Authorization", head(protocol, headers)[1])

    @given(st.text(max_size=20), st.text(min_size=1, max_size=20))
    def test_nobodyWritesLines(self, token: str, method: str) -> None:
        """Whatever a caller sends, it stays where it belongs."""
        for text in (token, f"a\r\nX: {token}", f"a\n{token}", "a\0"):
            first, fields = head("tcp", {}, CallCredentials(text, text), method, state=text)
            self.assertRegex(first, r"^POST /v1/Pro\.be/[!-~]+ HTTP/1\.1$")
            self.assertEqual(first.count("/"), 4)
            self.assertNotIn("X", fields)

    def test_tooLong(self) -> None:
        """What would burst the head is left out."""
        headers = {"x-forwarded-for": "1, " * 4000, "authorization": "x" * 9000}
        _, fields = head("http", headers, CallCredentials("x" * 9000))
        self.assertEqual(fields["X-Forwarded-For"], "192.0.2.7")
        self.assertNotIn("Authorization", fields)

    def test_circles(self) -> None:
        """A call is not sent on for ever."""
        self.assertEqual(head(headers={"x-gateway-hops": "4"})[1]["X-Gateway-Hops"], "5")
        for hops in ("5", "999999", "-1", "x", ""):
            error: Any = self.assertRaises(ServiceError, head, headers={"x-gateway-hops": hops})
            self.assertEqual(error.code, "INTERNAL_ERROR")
