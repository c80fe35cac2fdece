"""The documents of settings from XML and to XML, as the handlers of S3 read and write them."""

from collections.abc import Callable, Iterable, Mapping

from storagegate.objects.access.acl import AccessControlList, AccountDirectory
from storagegate.objects.access.decision import PublicAccessBlock
from storagegate.objects.cors import CORSRule
from storagegate.objects.documents import acl, buckets, cors, lifecycle, locks
from storagegate.objects.lifecycle import LifecycleRule
from storagegate.s3.xml.reader import LIFECYCLE_LIMIT, readDocument, readListDocument
from storagegate.s3.xml.writer import writeDocument
from storagegate.storage.records import ObjectLock


def readCORS(body: bytes) -> tuple[CORSRule, ...]:
    """Read CORSConfiguration."""
    return cors.readCORS(readDocument(body, "CORSConfiguration"))


def writeCORS(rules: Iterable[CORSRule]) -> bytes:
    """Write CORSConfiguration."""
    return writeDocument(cors.writeCORS(rules))


def readLifecycle(body: bytes) -> tuple[LifecycleRule, ...]:
    """Read LifecycleConfiguration."""
    return lifecycle.readLifecycle(readDocument(body, "LifecycleConfiguration", LIFECYCLE_LIMIT))


def writeLifecycle(rules: Iterable[LifecycleRule]) -> bytes:
    """Write LifecycleConfiguration."""
    return writeDocument(lifecycle.writeLifecycle(rules))


def readList(body: bytes, owner: str, directory: AccountDirectory) -> AccessControlList:
    """Read AccessControlPolicy."""
    return acl.readList(readListDocument(body), owner, directory)


def accessControlPolicy(
    account: str, found: AccessControlList, nameOf: Callable[[str], str | None]
) -> bytes:
    """Write AccessControlPolicy."""
    return writeDocument(acl.writeList(account, found, nameOf))


def readTagging(body: bytes) -> list[tuple[str, str]]:
    """Read Tagging."""
    return buckets.readTagging(readDocument(body, "Tagging"))


def tagging(tags: Mapping[str, str]) -> bytes:
    """Write Tagging."""
    return writeDocument(buckets.writeTagging(tags))


def readVersioning(body: bytes) -> str:
    """Read VersioningConfiguration."""
    return buckets.readVersioning(readDocument(body, "VersioningConfiguration"))


def readOwnership(body: bytes) -> str:
    """Read OwnershipControls."""
    return buckets.readOwnership(readDocument(body, "OwnershipControls"))


def readPublicAccessBlock(body: bytes) -> PublicAccessBlock:
    """Read PublicAccessBlockConfiguration."""
    return buckets.readPublicAccessBlock(readDocument(body, "PublicAccessBlockConfiguration"))


def publicAccessBlock(block: PublicAccessBlock) -> bytes:
    """Write PublicAccessBlockConfiguration."""
    return writeDocument(buckets.writePublicAccessBlock(block))


def readRetention(body: bytes) -> ObjectLock:
    """Read Retention."""
    return locks.readRetention(readDocument(body, "Retention"))


def readLegalHold(body: bytes) -> bool:
    """Read LegalHold."""
    return locks.readLegalHold(readDocument(body, "LegalHold"))
