"""
The settings of buckets and objects as JSON: Amazon's documents, member by member.

A member of a document becomes a member of an object; members that may repeat become a list. A
policy is JSON in S3, too.
"""

import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import Any

import msgspec
from attrs import frozen

from storagegate.console.call import ConsoleCall, ConsoleCaller
from storagegate.core.errors import ServiceError, codedError
from storagegate.objects.access.context import describeLock
from storagegate.objects.documents.acl import readList, writeList
from storagegate.objects.documents.buckets import (
    readOwnership,
    readPublicAccessBlock,
    readTagging,
    readVersioning,
    writeOwnership,
    writePublicAccessBlock,
    writeTagging,
    writeVersioning,
)
from storagegate.objects.documents.cors import readCORS, writeCORS
from storagegate.objects.documents.encryption import readEncryption, writeEncryption
from storagegate.objects.documents.lifecycle import readLifecycle, writeLifecycle
from storagegate.objects.documents.locks import (
    readLegalHold,
    readLockConfiguration,
    readRetention,
    writeLegalHold,
    writeLockConfiguration,
    writeRetention,
)
from storagegate.objects.documents.tree import Document
from storagegate.objects.errors import MalformedDocument
from storagegate.objects.operations import (
    DeleteBucketCors,
    DeleteBucketEncryption,
    DeleteBucketLifecycle,
    DeleteBucketOwnershipControls,
    DeleteBucketPolicy,
    DeleteBucketTagging,
    DeleteObjectTagging,
    DeletePublicAccessBlock,
    GetBucketAcl,
    GetBucketCors,
    GetBucketEncryption,
    GetBucketLifecycleConfiguration,
    GetBucketOwnershipControls,
    GetBucketPolicy,
    GetBucketTagging,
    GetBucketVersioning,
    GetObjectLegalHold,
    GetObjectLockConfiguration,
    GetObjectRetention,
    GetPublicAccessBlock,
    Operation,
    PutBucketAcl,
    PutBucketCors,
    PutBucketEncryption,
    PutBucketLifecycleConfiguration,
    PutBucketOwnershipControls,
    PutBucketPolicy,
    PutBucketTagging,
    PutBucketVersioning,
    PutObjectLegalHold,
    PutObjectLockConfiguration,
    PutObjectRetention,
    PutObjectTagging,
    PutPublicAccessBlock,
    T,
)
from storagegate.objects.retention import findLocked
from storagegate.objects.service import ObjectService
from storagegate.objects.tags import BUCKET_TAGS, OBJECT_TAGS, checkedTags, decodeTags
from storagegate.storage.records import ObjectLock

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]{0,63}", re.ASCII)
_DEPTH = 8

# Characters that S3 could not return in XML.
_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")

_LIMIT = 64 * 1024
_LIFECYCLE_LIMIT = 512 * 1024
"""Sizes of documents, in characters: those of S3, which writes a similar number of bytes."""


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
    def settings(self) -> "Mapping[str, Setting]":
        """The settings of this target."""
        return OBJECT_SETTINGS if self.key else SETTINGS

    def setting(self, name: str) -> "Setting":
        """
        Return a setting by name.

        @raise ServiceError: C{NOT_FOUND}.
        """
        if name not in self.settings:
            raise codedError("NOT_FOUND", f"The settings are {', '.join(self.settings)}")
        return self.settings[name]


@frozen
class SettingRequest:
    """A request for a setting, after the policy of the key was checked."""

    objects: ObjectService
    caller: ConsoleCaller
    target: Target

    @property
    def bucket(self) -> str:
        """The bucket of the target."""
        return self.target.bucket

    @property
    def version(self) -> tuple[str, bytes, str | None]:
        """The version that is the target."""
        return self.target.bucket, self.target.key, self.target.versionId

    def perform(self, operation: Operation[T]) -> Coroutine[Any, Any, T]:
        """Perform an operation of the domain for this request."""
        return self.objects.perform(self.caller, operation)


@frozen
class Setting:
    """
    A setting.

    @ivar operation: The part of its operations' names after C{Get} and C{Put}.
    @ivar root: The name of its document; empty for a policy, which is stored as it is.
    @ivar read: Returns the document, or the policy.
    @ivar store: Stores a document, or a policy.
    @ivar remove: Removes the setting; L{None} if it cannot be removed.
    @ivar removal: The name of the operation that removes it.
    @ivar limit: Largest size of its document, in characters.
    """

    operation: str
    root: str
    read: Callable[[SettingRequest], Awaitable[Any]]
    store: Callable[[SettingRequest, Any], Awaitable[None]]
    remove: Callable[[SettingRequest], Awaitable[None]] | None = None
    removal: str = ""
    limit: int = _LIMIT


async def _readVersioning(of: SettingRequest) -> Document:
    return writeVersioning(await of.perform(GetBucketVersioning(of.bucket)))


async def _storeVersioning(of: SettingRequest, document: Document) -> None:
    await of.perform(PutBucketVersioning(of.bucket, readVersioning(document)))


async def _readLock(of: SettingRequest) -> Document:
    return writeLockConfiguration(await of.perform(GetObjectLockConfiguration(of.bucket)))


async def _storeLock(of: SettingRequest, document: Document) -> None:
    await of.perform(PutObjectLockConfiguration(of.bucket, readLockConfiguration(document)))


async def _readLifecycle(of: SettingRequest) -> Document:
    rules, _ = await of.perform(GetBucketLifecycleConfiguration(of.bucket))
    return writeLifecycle(rules)


async def _storeLifecycle(of: SettingRequest, document: Document) -> None:
    await of.perform(PutBucketLifecycleConfiguration(of.bucket, readLifecycle(document)))


async def _removeLifecycle(of: SettingRequest) -> None:
    await of.perform(DeleteBucketLifecycle(of.bucket))


async def _readPolicy(of: SettingRequest) -> Any:
    return msgspec.json.decode(await of.perform(GetBucketPolicy(of.bucket)))


async def _storePolicy(of: SettingRequest, document: Any) -> None:
    await of.perform(PutBucketPolicy(of.bucket, msgspec.json.encode(document)))


async def _removePolicy(of: SettingRequest) -> None:
    await of.perform(DeleteBucketPolicy(of.bucket))


async def _readCORS(of: SettingRequest) -> Document:
    return writeCORS(await of.perform(GetBucketCors(of.bucket)))


async def _storeCORS(of: SettingRequest, document: Document) -> None:
    await of.perform(PutBucketCors(of.bucket, readCORS(document)))


async def _removeCORS(of: SettingRequest) -> None:
    await of.perform(DeleteBucketCors(of.bucket))


async def _readEncryption(of: SettingRequest) -> Document:
    return writeEncryption(await of.perform(GetBucketEncryption(of.bucket)))


async def _storeEncryption(of: SettingRequest, document: Document) -> None:
    await of.perform(PutBucketEncryption(of.bucket, readEncryption(document)))


async def _removeEncryption(of: SettingRequest) -> None:
    await of.perform(DeleteBucketEncryption(of.bucket))


async def _readACL(of: SettingRequest) -> Document:
    owner, acl = await of.perform(GetBucketAcl(of.bucket))
    return writeList(owner, acl, of.objects.accounts.nameOf)


async def _storeACL(of: SettingRequest, document: Document) -> None:
    bucket = await of.objects.bucket(of.caller, of.bucket)
    acl = readList(document, bucket.account, of.objects.accounts)
    await of.perform(PutBucketAcl(of.bucket, acl))


async def _readOwnership(of: SettingRequest) -> Document:
    return writeOwnership(await of.perform(GetBucketOwnershipControls(of.bucket)))


async def _storeOwnership(of: SettingRequest, document: Document) -> None:
    await of.perform(PutBucketOwnershipControls(of.bucket, readOwnership(document)))


async def _removeOwnership(of: SettingRequest) -> None:
    await of.perform(DeleteBucketOwnershipControls(of.bucket))


async def _readBlock(of: SettingRequest) -> Document:
    return writePublicAccessBlock(await of.perform(GetPublicAccessBlock(of.bucket)))


async def _storeBlock(of: SettingRequest, document: Document) -> None:
    await of.perform(PutPublicAccessBlock(of.bucket, readPublicAccessBlock(document)))


async def _removeBlock(of: SettingRequest) -> None:
    await of.perform(DeletePublicAccessBlock(of.bucket))


async def _readTags(of: SettingRequest) -> Document:
    return writeTagging(await of.perform(GetBucketTagging(of.bucket)))


async def _storeTags(of: SettingRequest, document: Document) -> None:
    tags = checkedTags(readTagging(document), BUCKET_TAGS)
    await of.perform(PutBucketTagging(of.bucket, tags))


async def _removeTags(of: SettingRequest) -> None:
    await of.perform(DeleteBucketTagging(of.bucket))


async def _readObjectTags(of: SettingRequest) -> Document:
    _, record = await of.objects.object(of.caller, *of.version)
    return writeTagging(decodeTags(record.attributes.tags))


async def _storeObjectTags(of: SettingRequest, document: Document) -> None:
    tags = checkedTags(readTagging(document), OBJECT_TAGS)
    # The change is authorised again with the new tags, which a policy may forbid.
    of.caller.tags = tags
    await of.perform(PutObjectTagging(*of.version, tags))


async def _removeObjectTags(of: SettingRequest) -> None:
    await of.perform(DeleteObjectTagging(*of.version))


async def _readRetention(of: SettingRequest) -> Document:
    return writeRetention(await of.perform(GetObjectRetention(*of.version)))


async def _storeRetention(of: SettingRequest, document: Document) -> None:
    await findLocked(of.objects, of.caller, *of.version)
    lock = readRetention(document)
    of.caller.named = describeLock(lock)
    await of.perform(PutObjectRetention(*of.version, lock, of.target.bypass))


async def _readLegalHold(of: SettingRequest) -> Document:
    return writeLegalHold(await of.perform(GetObjectLegalHold(*of.version)))


async def _storeLegalHold(of: SettingRequest, document: Document) -> None:
    await findLocked(of.objects, of.caller, *of.version)
    isOn = readLegalHold(document)
    of.caller.named = describeLock(ObjectLock(legalHold=isOn))
    await of.perform(PutObjectLegalHold(*of.version, isOn))


SETTINGS: Mapping[str, Setting] = {
    "versioning": Setting(
        "BucketVersioning", "VersioningConfiguration", _readVersioning, _storeVersioning
    ),
    "lock": Setting("ObjectLockConfiguration", "ObjectLockConfiguration", _readLock, _storeLock),
    "lifecycle": Setting(
        "BucketLifecycleConfiguration",
        "LifecycleConfiguration",
        _readLifecycle,
        _storeLifecycle,
        _removeLifecycle,
        "DeleteBucketLifecycle",
        _LIFECYCLE_LIMIT,
    ),
    "policy": Setting(
        "BucketPolicy", "", _readPolicy, _storePolicy, _removePolicy, "DeleteBucketPolicy"
    ),
    "cors": Setting(
        "BucketCors", "CORSConfiguration", _readCORS, _storeCORS, _removeCORS, "DeleteBucketCors"
    ),
    "encryption": Setting(
        "BucketEncryption",
        "ServerSideEncryptionConfiguration",
        _readEncryption,
        _storeEncryption,
        _removeEncryption,
        "DeleteBucketEncryption",
    ),
    "acl": Setting("BucketAcl", "AccessControlPolicy", _readACL, _storeACL),
    "ownership": Setting(
        "BucketOwnershipControls",
        "OwnershipControls",
        _readOwnership,
        _storeOwnership,
        _removeOwnership,
        "DeleteBucketOwnershipControls",
    ),
    "publicAccessBlock": Setting(
        "PublicAccessBlock",
        "PublicAccessBlockConfiguration",
        _readBlock,
        _storeBlock,
        _removeBlock,
        "DeletePublicAccessBlock",
    ),
    "tags": Setting(
        "BucketTagging", "Tagging", _readTags, _storeTags, _removeTags, "DeleteBucketTagging"
    ),
}
"""The settings of a bucket, by their names in the API."""

OBJECT_SETTINGS: Mapping[str, Setting] = {
    "tags": Setting(
        "ObjectTagging",
        "Tagging",
        _readObjectTags,
        _storeObjectTags,
        _removeObjectTags,
        "DeleteObjectTagging",
    ),
    "retention": Setting("ObjectRetention", "Retention", _readRetention, _storeRetention),
    "legalHold": Setting("ObjectLegalHold", "LegalHold", _readLegalHold, _storeLegalHold),
}
"""The settings of a version of an object. An empty retention lifts it."""


def _open(call: ConsoleCall, operation: str, access: str, target: Target) -> SettingRequest:
    """Check the policy of the key for an operation."""
    caller = call.caller(operation, access, target.bucket, target.key)
    return SettingRequest(call.services.objects, caller, target)


async def readSetting(call: ConsoleCall, target: Target, name: str) -> Any:
    """
    Read a setting.

    @return: The document; empty if S3 returns an empty one.
    @raise ServiceError: C{NOT_FOUND}: the API has no such setting.
    @raise DomainError: The setting was never made.
    """
    setting = target.setting(name)
    found = await setting.read(_open(call, f"Get{setting.operation}", "read", target))
    return _shape(found) if isinstance(found, Document) else found


async def storeSetting(call: ConsoleCall, target: Target, name: str, document: Any) -> None:
    """
    Store a setting.

    @param document: The document as decoded JSON.
    @raise ServiceError: The setting does not exist, or the document is not an object.
    @raise DomainError: The document is invalid.
    """
    setting = target.setting(name)
    if not isinstance(document, dict):
        raise codedError("INVALID_ARGUMENT", "The document of a setting must be an object")
    if setting.root:
        _checkSize(setting, document)
    request = _open(call, f"Put{setting.operation}", "write" if target.key else "admin", target)
    if target.key:
        await request.objects.object(request.caller, *request.version)
    else:
        await request.objects.bucket(request.caller, request.bucket)
    if not setting.root:
        await setting.store(request, document)
        return
    (read,) = _documents(setting.root, document, 0)
    await setting.store(request, read)


async def removeSetting(call: ConsoleCall, target: Target, name: str) -> None:
    """
    Remove a setting.

    @raise ServiceError: The setting does not exist, or cannot be removed.
    """
    setting = target.setting(name)
    if setting.remove is None:
        raise codedError("INVALID_ARGUMENT", f"{name} can be changed but not removed")
    await setting.remove(_open(call, setting.removal, "write" if target.key else "admin", target))


def _shape(document: Document) -> Any:
    """Return a document as JSON."""
    if not document.members:
        return document.text
    found: dict[str, Any] = {"type": document.kind} if document.kind else {}
    for member in document.members:
        if member.isList:
            found.setdefault(member.name, []).append(_shape(member))
        else:
            found[member.name] = _shape(member)
    return found


def _checkSize(setting: Setting, document: Any) -> None:
    """
    Check the form and the size of a document from JSON.

    @raise MalformedDocument: A value has no form in S3.
    @raise ServiceError: The document is too large.
    """
    left = setting.limit
    for each in _walk(_documents(setting.root, document, 0)):
        left -= 2 * len(each.name) + 5 + len(each.text.encode())
        if left < 0:
            raise ServiceError("MaxMessageLengthExceeded", "Your request was too big.", 400)


def _walk(documents: Iterator[Document]) -> Iterator[Document]:
    for each in documents:
        yield each
        yield from _walk(iter(each.members))


def _documents(name: str, value: Any, depth: int) -> Iterator[Document]:
    """
    Read a JSON value as one or more members.

    @raise MalformedDocument: The value has no form in S3.
    """
    if depth > _DEPTH or not _NAME.fullmatch(name):
        raise MalformedDocument()
    if isinstance(value, list):
        for each in value:
            yield from _documents(name, each, depth + 1)
        return
    if isinstance(value, dict):
        members = dict(value)
        kind = str(members.pop("type")) if name == "Grantee" and "type" in members else ""
        yield Document(
            name,
            members=tuple(
                found
                for member, each in members.items()
                for found in _documents(member, each, depth + 1)
            ),
            kind=kind.rpartition(":")[2],
        )
        return
    if isinstance(value, bool):
        value = "true" if value else "false"
    if not isinstance(value, str | int):
        raise MalformedDocument()
    text = str(value).replace("\r\n", "\n").replace("\r", "\n")
    if _UNWRITABLE.search(text):
        raise MalformedDocument()
    yield Document(name, text)
