"""
The settings of buckets and objects as JSON: the documents of S3, member by member.

S3's own handler reads and stores each setting; the document is converted to or from JSON on the
way. So each check, limit and access decision is the same as in S3. An element becomes a member; a
repeatable element becomes a list. A policy is JSON in S3, too.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape, quoteattr

import msgspec
from attrs import define, field, frozen

from storagegate.console.call import ConsoleCall, ConsoleCaller
from storagegate.console.s3errors import s3Errors
from storagegate.core.errors import codedError
from storagegate.s3.errors import S3Error
from storagegate.s3.locks import BYPASS
from storagegate.s3.operations import OPERATIONS
from storagegate.s3.request import Operation

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]{0,63}", re.ASCII)

_SCHEMA_INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"

_REPEATED = frozenset(
    {
        "AllowedHeader",
        "AllowedMethod",
        "AllowedOrigin",
        "CORSRule",
        "ExposeHeader",
        "Grant",
        "NoncurrentVersionTransition",
        "Rule",
        "Transition",
    }
)
"""Elements that may repeat, in any parent."""

_REPEATED_IN = {"TagSet": "Tag", "And": "Tag"}
"""Elements that may repeat, by their parent."""

_DEPTH = 8


@frozen
class Setting:
    """
    A setting.

    @ivar operation: The part of its operations' names after C{Get} and C{Put}.
    @ivar root: The root element of its document; empty for JSON.
    @ivar delete: The operation that removes the setting; L{None} if there is none.
    """

    operation: str
    root: str
    delete: str | None = None


SETTINGS: Mapping[str, Setting] = {
    "versioning": Setting("BucketVersioning", "VersioningConfiguration"),
    "lock": Setting("ObjectLockConfiguration", "ObjectLockConfiguration"),
    "lifecycle": Setting(
        "BucketLifecycleConfiguration", "LifecycleConfiguration", "DeleteBucketLifecycle"
    ),
    "policy": Setting("BucketPolicy", "", "DeleteBucketPolicy"),
    "cors": Setting("BucketCors", "CORSConfiguration", "DeleteBucketCors"),
    "acl": Setting("BucketAcl", "AccessControlPolicy"),
    "ownership": Setting(
        "BucketOwnershipControls", "OwnershipControls", "DeleteBucketOwnershipControls"
    ),
    "publicAccessBlock": Setting(
        "PublicAccessBlock", "PublicAccessBlockConfiguration", "DeletePublicAccessBlock"
    ),
    "tags": Setting("BucketTagging", "Tagging", "DeleteBucketTagging"),
}
"""The settings of a bucket, by their names in the API."""

OBJECT_SETTINGS: Mapping[str, Setting] = {
    "tags": Setting("ObjectTagging", "Tagging", "DeleteObjectTagging"),
    "retention": Setting("ObjectRetention", "Retention"),
    "legalHold": Setting("ObjectLegalHold", "LegalHold"),
}
"""The settings of a version of an object. An empty retention lifts it."""


@frozen
class Target:
    """
    The bucket or object of a setting.

    @ivar key: Empty for the bucket itself.
    @ivar versionId: L{None} for the current version.
    @ivar bypass: Whether to bypass a retention in governance mode.
    """

    bucket: str
    key: bytes = b""
    versionId: str | None = None
    bypass: bool = False

    @property
    def settings(self) -> Mapping[str, Setting]:
        """The settings of this target."""
        return OBJECT_SETTINGS if self.key else SETTINGS

    def setting(self, name: str) -> Setting:
        """
        Return a setting by name.

        @raise ServiceError: C{NOT_FOUND}.
        """
        if name not in self.settings:
            raise codedError("NOT_FOUND", f"The settings are {', '.join(self.settings)}")
        return self.settings[name]


@define(eq=False)
class _SettingRequest(ConsoleCaller):
    """
    A request for a setting, with the part of C{S3Request} that S3's handlers use.

    @ivar documentTags: The tags in the document, after it was read.
    """

    services: Any = None
    bucket: str = ""
    document: bytes = b""
    key: bytes = b""
    query: Mapping[str, str] = field(factory=dict)
    headers: Mapping[bytes, bytes] = field(factory=dict)
    documentTags: Mapping[str, str] | None = field(default=None, init=False)
    response: bytes | None = field(default=None, init=False)

    @property
    def requestTags(self) -> Mapping[str, str]:
        """The tags that the request would set."""
        return self.documentTags or {}

    async def readDocument(self, checked: bool = True) -> bytes:
        """Return the document."""
        return self.document

    async def removeSetting(self, *names: str, document: bytes | None = None) -> None:
        """Remove settings, as S3 does."""
        await self.services.objects.bucket(self, self.bucket)
        await self.services.objects.putSettings(self.bucket, dict.fromkeys(names, document))

    def respond(self, code: int, headers: Sequence[Any] = (), body: bytes = b"") -> None:
        """Record a response."""
        self.response = body

    def respondXML(self, body: bytes, headers: Sequence[Any] = ()) -> None:
        """Record a document."""
        self.response = body


async def _run(
    call: ConsoleCall, operation: Operation, target: Target, document: bytes = b""
) -> bytes:
    """Run an operation of S3; return the body of its response."""
    caller = call.caller(operation.name, operation.access, target.bucket, target.key)
    services = SimpleNamespace(objects=call.services.objects, accounts=call.services.accounts)
    request: Any = _SettingRequest(
        caller.identity,
        operation.name,
        call.request,
        None,
        services=services,
        bucket=target.bucket,
        document=document,
        key=target.key,
        query={} if target.versionId is None else {"versionId": target.versionId},
        headers={BYPASS: b"true"} if target.bypass else {},
    )
    with s3Errors():
        await operation.handler(request)
    found: bytes | None = request.response
    return found or b""


async def readSetting(call: ConsoleCall, target: Target, name: str) -> Any:
    """
    Read a setting.

    @return: The document; empty if S3 returns an empty one.
    @raise ServiceError: C{NOT_FOUND}: the setting does not exist, or was never made.
    """
    setting = target.setting(name)
    body = await _run(call, OPERATIONS[f"Get{setting.operation}"], target)
    if not setting.root:
        return msgspec.json.decode(body)
    return _readElement(ElementTree.fromstring(body))


async def storeSetting(call: ConsoleCall, target: Target, name: str, document: Any) -> None:
    """
    Store a setting.

    @param document: The document as decoded JSON.
    @raise ServiceError: The setting does not exist, or the document is not an object.
    @raise S3Error: S3 refuses the document.
    """
    setting = target.setting(name)
    if not isinstance(document, dict):
        raise codedError("INVALID_ARGUMENT", "The document of a setting must be an object")
    operation = OPERATIONS[f"Put{setting.operation}"]
    if setting.root:
        with s3Errors():
            encoded = _encode(setting.root, document, operation.documentLimit)
    else:
        encoded = msgspec.json.encode(document)
    await _run(call, operation, target, encoded)


async def removeSetting(call: ConsoleCall, target: Target, name: str) -> None:
    """
    Remove a setting.

    @raise ServiceError: The setting does not exist, or cannot be removed.
    """
    operation = target.setting(name).delete
    if operation is None:
        raise codedError("INVALID_ARGUMENT", f"{name} can be changed but not removed")
    await _run(call, OPERATIONS[operation], target)


def _readElement(element: ElementTree.Element) -> Any:
    """Return an element as JSON."""
    children = list(element)
    if not children:
        return element.text or ""
    found: dict[str, Any] = {}
    kind = element.get(f"{{{_SCHEMA_INSTANCE}}}type")
    if kind is not None:
        found["type"] = kind
    own = element.tag.rpartition("}")[2]
    for child in children:
        name = child.tag.rpartition("}")[2]
        value = _readElement(child)
        if name in _REPEATED or _REPEATED_IN.get(own) == name:
            found.setdefault(name, []).append(value)
        else:
            found[name] = value
    return found


def _encode(root: str, document: Any, limit: int) -> bytes:
    """
    Write a document as XML.

    @param limit: Largest size of the document, in bytes.
    @raise S3Error: C{MalformedXML}: the value has no XML form; C{MaxMessageLengthExceeded}.
    """
    pieces: list[bytes] = []
    size = 0
    for piece in _writeElement(root, document, 0):
        size += len(piece)
        if size > limit:
            raise S3Error("MaxMessageLengthExceeded")
        pieces.append(piece)
    return b"".join(pieces)


def _writeElement(name: str, value: Any, depth: int) -> Iterator[bytes]:
    """
    Write a JSON value as one or more elements.

    @raise S3Error: C{MalformedXML}: the value has no XML form.
    """
    if depth > _DEPTH or not _NAME.fullmatch(name):
        raise S3Error("MalformedXML")
    if isinstance(value, list):
        for each in value:
            yield from _writeElement(name, each, depth + 1)
        return
    if isinstance(value, dict):
        members = dict(value)
        attribute = ""
        if name == "Grantee" and "type" in members:
            kind = quoteattr(str(members.pop("type")))
            attribute = f' xmlns:xsi="{_SCHEMA_INSTANCE}" xsi:type={kind}'
        yield f"<{name}{attribute}>".encode()
        for member, each in members.items():
            yield from _writeElement(member, each, depth + 1)
        yield f"</{name}>".encode()
        return
    if isinstance(value, bool):
        value = "true" if value else "false"
    if not isinstance(value, str | int):
        raise S3Error("MalformedXML")
    yield f"<{name}>{escape(str(value))}</{name}>".encode()
