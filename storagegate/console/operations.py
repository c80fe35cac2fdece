"""
The operations of the API: one table, from which
L{ConsoleAPI<storagegate.console.api.ConsoleAPI>} makes routes.

A handler is a coroutine function of a L{ConsoleCall<storagegate.console.call.ConsoleCall>}. Its
optional parameters C{query} and C{body} are annotated with the C{Struct} of the query or the JSON
document; its result is annotated with the type of the response: C{None} is 204. A handler that
sends bytes or a stream responds itself, and returns L{ANSWERED<storagegate.console.call.ANSWERED>}.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from inspect import get_annotations
from pkgutil import resolve_name
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from attrs import frozen

from storagegate.core.openapi import JSON_TYPE
from storagegate.http.options import RouteDescriptionDict
from storagegate.net.http.lines import NDJSON

PREFIX = "api/v1/"
"""The path of the API, below the console."""

_PACKAGE = "storagegate.console"


BYTES = "application/octet-stream"

_CONSUMED = {"putObject": BYTES, "putPart": BYTES}
"""The media types of bodies that are not JSON, by the name of the operation."""

_PRODUCED = {
    "showObject": BYTES,
    "sendBytes": BYTES,
    "sendZip": "application/zip",
    "streamEvents": "text/event-stream",
    "callMethod": NDJSON,
}
"""The media types of responses that are not JSON, or not always, by the name of the operation."""


@frozen(slots=False)
class APIOperation:
    """
    A row of the table.

    @ivar path: The path below L{PREFIX}. C{{name}} is one percent-encoded segment, including its
        slashes.
    @ivar handler: C{module:function} in this package.
    @ivar least: The required role; empty if not even a session is required.
    @ivar summary: A description in one sentence.
    """

    method: str
    path: str
    handler: str
    least: str
    summary: str

    @property
    def pattern(self) -> str:
        """The path as a pattern of a route."""
        return "/" + re.sub(r"\{(\w+)\}", r":\1", self.path)

    @property
    def changes(self) -> bool:
        """Whether the operation may change something and is logged."""
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

    # Functions that the route calls on first use: an import takes longer than most requests.

    def queryType(self) -> Any:
        """Return the type of the query; L{None} without one."""
        return self.types.get("query")

    def bodyType(self) -> Any:
        """Return the type of the body; L{None} for any document, or none."""
        found = self.types.get("body")
        return None if found is Any else found

    def resultType(self) -> Any:
        """Return the type of the result as JSON; L{None} for any, or none."""
        found = self.types.get("return")
        members = [each for each in get_args(found) or (found,) if each is not Any]
        if get_origin(found) in (Union, UnionType) and len(members) == 1:
            return members[0]
        return found if members and found is not NoneType else None

    def describe(self) -> RouteDescriptionDict:
        """Return the description of the route in OpenAPI."""
        types = self.types
        hasResult = types.get("return") not in (None, NoneType)
        consumes = [JSON_TYPE] if types.get("body") is Any else []
        produces = [JSON_TYPE] if types.get("return") is Any else []
        if self.name in _CONSUMED:
            consumes = [_CONSUMED[self.name]]
        if self.name in _PRODUCED:
            produces = [_PRODUCED[self.name]]
        return {
            "operationId": self.name,
            "summary": self.summary,
            "status": 200 if hasResult else 204,
            "consumes": consumes,
            "produces": produces,
            "security": [{"cookie": [], "token": []}] if self.least else [],
            "extensions": {"x-role": self.least},
        }


def _rows(module: str, *rows: tuple[str, str, str, str, str]) -> Iterator[APIOperation]:
    for method, path, function, least, summary in rows:
        yield APIOperation(method, path, f"{module}:{function}", least, summary)


OPERATIONS: tuple[APIOperation, ...] = (
    *_rows(
        "signin",
        ("POST", "session", "signIn", "", "Sign in with a key pair"),
        ("GET", "session", "showSession", "", "Describe the session of the request"),
        ("DELETE", "session", "signOut", "none", "End the session of the request"),
        ("GET", "session/issuers", "listIssuers", "", "List the issuers at which people sign in"),
        (
            "POST",
            "session/issuers/{issuer}",
            "beginSignIn",
            "",
            "Return the URL at which a person signs in to an issuer",
        ),
        ("POST", "session/code", "finishSignIn", "", "Sign in with the response of an issuer"),
        ("GET", "sessions", "listSessions", "none", "List your own sessions, or all"),
        ("DELETE", "sessions/{id}", "endSession", "none", "End a session"),
    ),
    *_rows("openapi", ("GET", "openapi.json", "showOpenAPI", "none", "Describe this API")),
    *_rows(
        "keys",
        ("GET", "keys", "listKeys", "none", "List your own access keys, or all"),
        ("POST", "keys", "createKey", "none", "Issue a key; the secret is only in this response"),
        ("POST", "reach", "showReach", "auditor", "Count the objects that a key would reach"),
        ("GET", "keys/{key}", "showKey", "none", "Describe a key"),
        ("PATCH", "keys/{key}", "changeKey", "admin", "Change a key, or rotate its secret"),
        ("DELETE", "keys/{key}", "revokeKey", "none", "Revoke a key"),
        ("POST", "keys/{key}/judge", "judgeAccess", "none", "Check whether a key allows an access"),
    ),
    *_rows(
        "users",
        ("GET", "accounts", "listAccounts", "auditor", "List the accounts"),
        ("GET", "identities/{operation}", "readIdentities", "none", "Read users and policies"),
        ("POST", "identities/{operation}", "changeIdentities", "none", "Change users and policies"),
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
        "bucketkeys",
        (
            "GET",
            "buckets/{bucket}/keys",
            "listBucketKeys",
            "auditor",
            "List the keys that reach it",
        ),
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
        (
            "POST",
            "jobs",
            "startJob",
            "none",
            "Delete, copy, move or tag objects, or empty a bucket",
        ),
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
        "masterkeys",
        ("GET", "masterkeys", "listMasterKeys", "auditor", "List the master keys of encryption"),
        ("POST", "masterkeys", "createMasterKey", "admin", "Create a master key"),
        (
            "PATCH",
            "masterkeys/{name}",
            "changeMasterKey",
            "admin",
            "Disable a master key, or enable it again",
        ),
        (
            "POST",
            "masterkeys/{name}/rotate",
            "rotateMasterKey",
            "admin",
            "Add a version to a master key",
        ),
        (
            "POST",
            "bucketkeys/rewrap",
            "rewrapKeys",
            "admin",
            "Wrap the keys of a page of buckets under the last versions of their master keys",
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
"""All operations."""
