"""The base of the cases here: a running daemon whose console is used over HTTP."""

import json
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote

from attrs import field, frozen

from tests.support.clients import ROOT, Account
from tests.wire.s3.fixture import S3Case

API = "/console/api/v1/"


@frozen
class Reply:
    """A response."""

    status: int
    headers: Any = field(repr=False)
    body: bytes

    @property
    def json(self) -> Any:
        """The document of the body."""
        return json.loads(self.body)


class ConsoleCase(S3Case):
    """
    Tests of the console of the daemon that all cases share.

    @ivar source: The address of this client, whose failed attempts are counted; empty for any.
    """

    source = ""

    def setUp(self) -> None:
        """Know where the console is."""
        super().setUp()
        self.admin = self.daemon.address("admin")

    def send(  # type: ignore[override]
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        base: str = API,
    ) -> Reply:
        """
        Send a request and receive the response.

        @param path: Below the API.
        @param body: Bytes, or what is sent as JSON.
        """
        raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        source = (self.source, 0) if self.source else None
        connection = HTTPConnection(*self.admin, timeout=60, source_address=source)
        try:
            connection.request(method, base + path, raw, headers or {})
            response = connection.getresponse()
            return Reply(response.status, response.headers, response.read())
        finally:
            connection.close()

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        account: Account = ROOT,
        **headers: str,
    ) -> Reply:
        """Send a request with a key pair; an underscore in a name of a header is a hyphen."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.send(method, path, body, {**account.plainHeaders(), **named})

    def objectPath(self, bucket: str, key: str) -> str:
        """Return the path of an object."""
        return f"buckets/{bucket}/objects/{quote(key, safe='')}"

    def signIn(self, account: Account = ROOT) -> dict[str, str]:
        """Sign in; return the fields of both halves of the session."""
        pair = {"accessKey": account.accessKey, "secretKey": account.secretKey}
        reply = self.send("POST", "session", pair)
        self.assertEqual(reply.status, 200, reply)
        cookie = reply.headers["Set-Cookie"].partition(";")[0]
        return {"Cookie": cookie, "X-Console-Token": reply.json["token"]}
