"""ServerSideEncryptionConfiguration."""

from storagegate.objects.documents.tree import Document, group, pairs
from storagegate.objects.encryption.requests import (
    SSE_C,
    SSE_KMS,
    SSE_S3,
    BucketEncryption,
    isKeyId,
)
from storagegate.objects.errors import InvalidArgument, MalformedDocument, UnsupportedFeature

_NO_BLOCK = "NONE"
_UNSUPPORTED = frozenset({"aws:kms:dsse", "aws:fsx", "aws:backup"})
_BOOLEANS = {"true": True, "false": False}


def readEncryption(document: Document) -> BucketEncryption:
    """
    Read the configuration of the only rule.

    @raise MalformedDocument: The document has another form.
    @raise InvalidArgument: The rule names a master key for a kind that has none.
    @raise UnsupportedFeature: The kind is one of Amazon's that is not implemented.
    """
    if [each.name for each in document.members] != ["Rule"]:
        raise MalformedDocument()
    members = document.members[0].byName(
        ("ApplyServerSideEncryptionByDefault", "BlockedEncryptionTypes", "BucketKeyEnabled")
    )
    if not members:
        raise MalformedDocument()
    kind, keyId = _readDefault(members.get("ApplyServerSideEncryptionByDefault"))
    isEnabled = None
    if "BucketKeyEnabled" in members:
        isEnabled = _BOOLEANS.get(members["BucketKeyEnabled"].text.strip().lower())
        if isEnabled is None:
            raise MalformedDocument()
    blocked = _readBlocked(members.get("BlockedEncryptionTypes"))
    return BucketEncryption(kind, keyId, isEnabled, blocked)


def _readDefault(document: Document | None) -> tuple[str, str]:
    """Read the kind and the master key of a default."""
    if document is None:
        return "", ""
    texts = document.texts(("SSEAlgorithm", "KMSMasterKeyID"))
    kind, keyId = texts.get("SSEAlgorithm"), texts.get("KMSMasterKeyID", "")
    if kind in _UNSUPPORTED:
        raise UnsupportedFeature()
    if kind not in (SSE_S3, SSE_KMS) or not isKeyId(keyId):
        raise MalformedDocument()
    if keyId and kind != SSE_KMS:
        message = (
            "a KMSMasterKeyID is not applicable if the default sse algorithm is not aws:kms or "
            "aws:kms:dsse"
        )
        raise InvalidArgument(message, name="ApplyServerSideEncryptionByDefault", value=keyId)
    return kind, keyId


def _readBlocked(document: Document | None) -> tuple[str, ...]:
    """Read the blocked kinds: C{NONE} alone unblocks all."""
    if document is None:
        return ()
    document.check(("EncryptionType",))
    found = tuple(dict.fromkeys(each.text.strip() for each in document.members))
    if found not in ((SSE_C,), (_NO_BLOCK,)):
        raise MalformedDocument()
    return found


def writeEncryption(encryption: BucketEncryption) -> Document:
    """Write a configuration as it was given."""
    members = []
    if encryption.kind:
        texts = pairs(SSEAlgorithm=encryption.kind, KMSMasterKeyID=encryption.keyId or None)
        members.append(group("ApplyServerSideEncryptionByDefault", texts))
    if encryption.blocked:
        kinds = [Document("EncryptionType", kind, isList=True) for kind in encryption.blocked]
        members.append(group("BlockedEncryptionTypes", kinds))
    if encryption.bucketKeyEnabled is not None:
        members += pairs(BucketKeyEnabled=str(encryption.bucketKeyEnabled).lower())
    rule = group("Rule", members, isList=True)
    return group("ServerSideEncryptionConfiguration", [rule])
