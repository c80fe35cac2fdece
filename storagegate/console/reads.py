"""Object contents, sent by S3's own handlers with the header fields of the console."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

from attrs import define

from storagegate.console.call import ConsoleCall, ConsoleCaller
from storagegate.console.guard import FIELDS
from storagegate.console.s3errors import s3Errors
from storagegate.net.http.message import checkedFields, encodeLines
from storagegate.objects.lifecycle import Calendar
from storagegate.s3.conditions import READ_FIELDS
from storagegate.s3.handlers.get import getObject, headObject

SANDBOX = (
    "sandbox; default-src 'none'; img-src 'self' data:; media-src 'self'; "
    "style-src 'unsafe-inline'; frame-ancestors 'self'"
)
"""The content security policy of object contents: no scripts, and nothing loaded from elsewhere."""

_PREVIEWED = ("image/", "text/", "audio/", "video/")

_OWN = frozenset({"x-content-type-options"})
"""Response fields that a response with an object's contents already has."""


@define(eq=False)
class ObjectRead(ConsoleCaller):
    """
    A read of an object, with the part of C{S3Request} that S3's handlers use.

    @ivar parameters: The parameters of S3's query.
    @ivar commonHeaders: The encoded fields of each response of the console.
    """

    services: Any = None
    bucket: str = ""
    key: bytes = b""
    parameters: Mapping[str, str] = {}
    commonHeaders: bytes = b""

    @property
    def request(self) -> Any:
        """The request of the connection."""
        return self._request.raw

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        """The range and the conditions of the request."""
        sent = self._request.raw.headers
        return {name: sent[name] for name in READ_FIELDS if name in sent}

    @property
    def query(self) -> Mapping[str, str]:
        """The version, and the fields that replace the object's own."""
        return self.parameters

    def respondObject(
        self, code: int, fields: bytes, body: bytes = b"", length: int | None = None
    ) -> None:
        """Send a complete response; see L{storagegate.s3.request.S3Request.respondObject}."""
        self.request.respondWith(code, self.commonHeaders + fields, body, length)

    def startObject(self, code: int, fields: bytes, length: int) -> None:
        """Send the head of a response; see L{storagegate.s3.request.S3Request.startObject}."""
        self.request.begin(code, checkedFields(self.commonHeaders + fields), length)


def disposition(key: bytes, kind: str) -> str:
    """
    Return an ASCII C{Content-Disposition} with the last segment of a key as file name.

    @param kind: C{attachment} or C{inline}.
    """
    name = key.decode().rstrip("/").rpartition("/")[2]
    shown = "".join(each if each.isprintable() else "_" for each in name) or "object"
    return f"{kind}; filename*=UTF-8''{quote(shown, safe='')}"


def isPreviewed(contentType: str) -> bool:
    """Return whether a browser may display a content type; it downloads any other."""
    bare = contentType.partition(";")[0].strip().lower()
    return bare.startswith(_PREVIEWED) or bare == "application/pdf"


async def sendObject(
    call: ConsoleCall,
    bucket: str,
    key: bytes,
    versionId: str | None = None,
    isPreview: bool = False,
) -> None:
    """
    Respond with the content of an object, or a range of it.

    @param isPreview: Whether the browser may display the object, if its type permits it.
    @raise DomainError: The errors of S3's GET.
    """
    caller = call.caller("GetObject", "read", bucket, key)
    services = SimpleNamespace(
        objects=call.services.objects, store=call.services.store, calendar=_CALENDAR
    )
    kind = "attachment"
    if isPreview:
        _, record = await call.services.objects.object(caller, bucket, key, versionId)
        if isPreviewed(record.attributes.contentType):
            kind = "inline"
    parameters = {
        "response-content-disposition": disposition(key, kind),
        "response-cache-control": "no-store",
    }
    if versionId is not None:
        parameters["versionId"] = versionId
    fields = {**FIELDS, "Content-Security-Policy": SANDBOX, "X-Frame-Options": "SAMEORIGIN"}
    common = encodeLines(
        (name.encode(), value.encode())
        for name, value in fields.items()
        if name.lower() not in _OWN
    )
    read = ObjectRead(
        caller.identity,
        "GetObject",
        call.request,
        None,
        services=services,
        bucket=bucket,
        key=key,
        parameters=parameters,
        commonHeaders=common,
    )
    with s3Errors():
        if call.request.method == "HEAD":
            await headObject(read)  # type: ignore[arg-type]
        else:
            await getObject(read)  # type: ignore[arg-type]


_CALENDAR = Calendar()
