"""
The operations of the API: one table, which routes requests and describes them as OpenAPI.

A handler is a coroutine function of a L{ConsoleCall<storagegate.console.call.ConsoleCall>}. Its
optional parameters C{query} and C{body} are annotated with the C{Struct} of the query or the JSON
document; its result is annotated with the type of the response: C{None} is 204. A handler that
sends bytes or a stream responds itself, and returns L{ANSWERED<storagegate.console.call.ANSWERED>}.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from inspect import get_annotations
from pkgutil import resolve_name
from typing import Any
from urllib.parse import unquote

from attrs import field, frozen

from storagegate.core.errors import ServiceError, codedError

PREFIX = "api/v1/"
"""The path of the API, below the console."""

_PACKAGE = "storagegate.console"


@frozen(slots=False)
class APIOperation:
    """
    A row of the table.

    @ivar path: The path below L{PREFIX}. C{{name}} is one percent-encoded segment, including its
        slashes.
    @ivar handler: C{module:function} in this package.
    @ivar least: The required role; empty if not even a session is required.
    @ivar summary: A description in one sentence.
    @ivar changes: Whether the operation may change something and is logged.
    """

    method: str
    path: str
    handler: str
    least: str
    summary: str
    segments: tuple[str, ...] = field(init=False, repr=False)

    @segments.default
    def _segments(self) -> tuple[str, ...]:
        return tuple(self.path.split("/"))

    @property
    def changes(self) -> bool:
        """Whether the operation may change something."""
        return self.method not in ("GET", "HEAD")

    @property
    def name(self) -> str:
        """The name of the handler's function."""
        return self.handler.partition(":")[2]

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The handler, imported on first use."""
        found: Callable[..., Any] = resolve_name(f"{_PACKAGE}.{self.handler}")
        return found

    @cached_property
    def types(self) -> Mapping[str, Any]:
        """The types of C{query}, C{body} and C{return}, if the handler has them."""
        types = get_annotations(self.function, eval_str=True)
        return {name: types[name] for name in ("query", "body", "return") if name in types}

    def match(self, segments: tuple[str, ...]) -> dict[str, str] | None:
        """
        Return the parameters of a path; L{None} if the path does not match.

        @raise ServiceError: C{INVALID_ARGUMENT}: a parameter is not UTF-8.
        """
        if len(segments) != len(self.segments):
            return None
        params: dict[str, str] = {}
        for ours, theirs in zip(self.segments, segments, strict=True):
            if ours.startswith("{"):
                params[ours[1:-1]] = theirs
            elif ours != theirs:
                return None
        try:
            return {name: _decoded(text) for name, text in params.items()}
        except ValueError:
            raise codedError("INVALID_ARGUMENT", "The path is not UTF-8") from None


def _decoded(segment: str) -> str:
    """
    Decode a segment. Browsers resolve C{.} and C{..}, escaped or not, as steps in the path, so both
    may be written with a leading tilde; a name that already has this form gets one more.

    @raise ValueError: The segment is not UTF-8.
    """
    text = unquote(segment, errors="strict")
    return text[1:] if _DOTS.fullmatch(text) else text


_DOTS = re.compile(r"~+\.{1,2}")


def _rows(module: str, *rows: tuple[str, str, str, str, str]) -> Iterator[APIOperation]:
    for method, path, function, least, summary in rows:
        yield APIOperation(method, path, f"{module}:{function}", least, summary)


OPERATIONS: tuple[APIOperation, ...] = (
    *_rows(
        "signin",
        ("POST", "session", "signIn", "", "Sign in with a key pair"),
        ("GET", "session", "showSession", "", "Describe the session of the request"),
        ("DELETE", "session", "signOut", "none", "End the session of the request"),
        ("GET", "sessions", "listSessions", "none", "List your own sessions, or all"),
        ("DELETE", "sessions/{id}", "endSession", "none", "End a session"),
    ),
    *_rows("openapi", ("GET", "openapi.json", "showOpenAPI", "none", "Describe this API")),
    *_rows(
        "keys",
        ("GET", "keys", "listKeys", "none", "List your own access keys, or all"),
        ("POST", "keys", "createKey", "admin", "Issue a key; the secret is only in this response"),
        ("POST", "reach", "showReach", "auditor", "Count the objects that a key would reach"),
        ("GET", "keys/{key}", "showKey", "none", "Describe a key"),
        ("PATCH", "keys/{key}", "changeKey", "admin", "Change a key, or rotate its secret"),
        ("DELETE", "keys/{key}", "revokeKey", "admin", "Revoke a key"),
        ("POST", "keys/{key}/judge", "judgeAccess", "none", "Check whether a key allows an access"),
    ),
    *_rows(
        "buckets",
        ("GET", "buckets", "listBuckets", "none", "List buckets with their usage"),
        ("POST", "buckets", "createBucket", "none", "Create a bucket"),
        ("GET", "buckets/{bucket}", "showBucket", "none", "Describe a bucket"),
        ("DELETE", "buckets/{bucket}", "deleteBucket", "none", "Delete an empty bucket"),
        ("GET", "buckets/{bucket}/settings/{name}", "showSetting", "none", "Read a setting"),
        ("PUT", "buckets/{bucket}/settings/{name}", "putSetting", "none", "Store a setting"),
        ("DELETE", "buckets/{bucket}/settings/{name}", "deleteSetting", "none", "Remove a setting"),
    ),
    *_rows(
        "objects",
        ("GET", "buckets/{bucket}/objects", "listObjects", "none", "List a page of objects"),
        ("GET", "buckets/{bucket}/versions", "listVersions", "none", "List a page of versions"),
        (
            "GET",
            "buckets/{bucket}/objects/{key}",
            "showObject",
            "none",
            "Return the metadata or the bytes of an object",
        ),
        ("PUT", "buckets/{bucket}/objects/{key}", "putObject", "none", "Store an object"),
        (
            "PATCH",
            "buckets/{bucket}/objects/{key}",
            "changeObject",
            "none",
            "Change the metadata of an object",
        ),
        ("DELETE", "buckets/{bucket}/objects/{key}", "deleteObject", "none", "Delete an object"),
        (
            "POST",
            "buckets/{bucket}/objects/{key}/copy",
            "copyObject",
            "none",
            "Copy an object to another name, or move it",
        ),
        ("POST", "buckets/{bucket}/delete", "deleteMany", "none", "Delete up to 1,000 objects"),
        *(
            (method, "buckets/{bucket}/objects/{key}/settings/{name}", function, "none", summary)
            for method, function, summary in (
                ("GET", "showObjectSetting", "Read tags, retention or legal hold"),
                ("PUT", "putObjectSetting", "Store tags, retention or legal hold"),
                ("DELETE", "deleteObjectSetting", "Remove the tags of an object"),
            )
        ),
    ),
    *_rows(
        "tickets",
        ("POST", "tickets", "makeTicket", "none", "Make a URL that a browser can fetch"),
        ("GET", "endpoint", "showEndpoint", "none", "Return the URL of S3 for clients"),
        ("GET", "bytes/{ticket}", "sendBytes", "", "Return the object of a ticket"),
        ("GET", "zip/{ticket}", "sendZip", "", "Return the objects of a ticket as a zip file"),
        ("POST", "buckets/{bucket}/share", "shareObject", "none", "Make a presigned URL"),
    ),
    *_rows(
        "uploads",
        ("POST", "buckets/{bucket}/uploads", "createUpload", "none", "Begin a multipart upload"),
        ("GET", "buckets/{bucket}/uploads", "listUploads", "none", "List uploads in progress"),
        (
            "GET",
            "buckets/{bucket}/uploads/{id}",
            "showUpload",
            "none",
            "List the parts of an upload",
        ),
        ("DELETE", "buckets/{bucket}/uploads/{id}", "abortUpload", "none", "Abort an upload"),
        (
            "PUT",
            "buckets/{bucket}/uploads/{id}/parts/{number}",
            "putPart",
            "none",
            "Store a part of an upload",
        ),
        (
            "POST",
            "buckets/{bucket}/uploads/{id}/complete",
            "completeUpload",
            "none",
            "Complete a multipart upload",
        ),
    ),
    *_rows(
        "jobs",
        ("GET", "jobs", "listJobs", "none", "List your own jobs, or all"),
        ("POST", "jobs", "startJob", "none", "Delete, copy or move by prefix, or abort uploads"),
        ("DELETE", "jobs/{id}", "cancelJob", "none", "Cancel a job"),
    ),
    *_rows(
        "overview",
        ("GET", "overview", "showOverview", "auditor", "Return the state of the daemon"),
        ("GET", "metrics", "showHistory", "auditor", "Return the metrics of the last hour"),
    ),
    *_rows(
        "maintenance",
        (
            "GET",
            "maintenance",
            "showMaintenance",
            "auditor",
            "Return the state of scrubbing, damage and disk",
        ),
        ("POST", "doctor", "runDoctor", "admin", "Run the doctor and return its findings"),
        (
            "POST",
            "clock/confirm",
            "confirmClock",
            "admin",
            "Trust the current time of the machine's clock",
        ),
    ),
    *_rows(
        "configuration",
        ("GET", "config", "showConfiguration", "auditor", "List the configuration keys"),
        ("POST", "config/reload", "reloadConfiguration", "admin", "Reload the configuration"),
    ),
    *_rows(
        "discovery",
        ("GET", "discovery", "showDiscovery", "auditor", "List services and their instances"),
    ),
    *_rows(
        "live",
        ("GET", "events", "streamEvents", "none", "Stream requests, health, jobs and metrics"),
    ),
    *_rows(
        "gateway",
        ("GET", "gateway", "showGateway", "auditor", "List the services and their methods"),
    ),
    *_rows(
        "calls",
        ("POST", "gateway/calls", "callMethod", "admin", "Call a method over a protocol"),
    ),
)
"""All operations; the first match serves a request."""


class MethodNotAllowed(ServiceError):
    """
    The path exists, but not with this method: the status is 405.

    @ivar headers: C{Allow}, which RFC 9110 section 15.5.6 requires.
    """

    def __init__(self, methods: Sequence[str]) -> None:
        allowed = ", ".join([*methods, "HEAD"] if "GET" in methods else methods)
        super().__init__("METHOD_NOT_ALLOWED", f"This path supports {allowed}", 405)
        self.headers = {"Allow": allowed}


def findOperation(method: str, path: str) -> tuple[APIOperation, dict[str, str]]:
    """
    Find the operation of a request.

    @param path: The raw path below L{PREFIX}.
    @return: The operation and the decoded parameters of the path.
    @raise ServiceError: C{NOT_FOUND}, or L{MethodNotAllowed}.
    """
    segments = tuple(path.split("/"))
    wanted = "GET" if method == "HEAD" else method
    allowed: list[str] = []
    for operation in OPERATIONS:
        params = operation.match(segments)
        if params is None:
            continue
        if operation.method == wanted:
            return operation, params
        allowed.append(operation.method)
    if allowed:
        raise MethodNotAllowed(allowed)
    raise codedError("NOT_FOUND", "The API has no such operation")
