"""VersioningConfiguration, Tagging, OwnershipControls and PublicAccessBlockConfiguration."""

from collections.abc import Mapping

from storagegate.objects.access.decision import OWNERSHIPS, PublicAccessBlock
from storagegate.objects.documents.tree import Document, group, pairs
from storagegate.objects.errors import InvalidRequest, MalformedDocument, UnsupportedFeature
from storagegate.storage.records import VERSIONING_ENABLED, VERSIONING_SUSPENDED

_BLOCK = {
    "BlockPublicAcls": "blockPublicAcls",
    "IgnorePublicAcls": "ignorePublicAcls",
    "BlockPublicPolicy": "blockPublicPolicy",
    "RestrictPublicBuckets": "restrictPublicBuckets",
}
_BOOLEANS = {"true": True, "false": False}


def readVersioning(document: Document) -> str:
    """
    Read the status of versioning.

    @raise MalformedDocument: The document has another form.
    @raise UnsupportedFeature: The document requests MFA delete.
    """
    texts = document.texts(("Status", "MfaDelete"))
    status, mfa = texts.get("Status"), texts.get("MfaDelete", "Disabled")
    if status not in (VERSIONING_ENABLED, VERSIONING_SUSPENDED):
        raise MalformedDocument()
    if mfa == "Enabled":
        raise UnsupportedFeature()
    if mfa != "Disabled":
        raise MalformedDocument()
    return status


def writeVersioning(versioning: str) -> Document:
    """Write the status of versioning, which is absent if versioning was never enabled."""
    return group("VersioningConfiguration", pairs(Status=versioning or None))


def readTagging(document: Document) -> list[tuple[str, str]]:
    """
    Read the key and value of each tag, unchecked.

    @raise MalformedDocument: A member is missing or surplus.
    """
    if [each.name for each in document.members] != ["TagSet"]:
        raise MalformedDocument()
    return [readTag(each) for each in document.members[0].members]


def readTag(tag: Document) -> tuple[str, str]:
    """
    Read the key and value of a tag, unchecked.

    @raise MalformedDocument: A member is missing or surplus.
    """
    texts = {each.name: each.text for each in tag.members if not each.members}
    if tag.name != "Tag" or len(tag.members) != 2 or texts.keys() != {"Key", "Value"}:
        raise MalformedDocument()
    return texts["Key"], texts["Value"]


def writeTagging(tags: Mapping[str, str]) -> Document:
    """Write tags."""
    rows = [group("Tag", pairs(Key=key, Value=value), isList=True) for key, value in tags.items()]
    return group("Tagging", [group("TagSet", rows)])


def readOwnership(document: Document) -> str:
    """
    Read the object ownership of the only rule.

    @raise MalformedDocument: The document has another form.
    """
    (rule, *more) = document.members or (document,)
    if more or rule.name != "Rule" or [each.name for each in rule.members] != ["ObjectOwnership"]:
        raise MalformedDocument()
    ownership = rule.members[0]
    if ownership.members or ownership.text not in OWNERSHIPS:
        raise MalformedDocument()
    return ownership.text


def writeOwnership(ownership: str) -> Document:
    """Write the object ownership."""
    rule = group("Rule", pairs(ObjectOwnership=ownership), isList=True)
    return group("OwnershipControls", [rule])


def readPublicAccessBlock(document: Document) -> PublicAccessBlock:
    """
    Read a public access block; absent members are off.

    @raise MalformedDocument: The document has another form.
    @raise InvalidRequest: The document has no member.
    """
    found = {}
    for name, text in document.texts(_BLOCK).items():
        value = _BOOLEANS.get(text.lower())
        if value is None:
            raise MalformedDocument()
        found[_BLOCK[name]] = value
    if not found:
        raise InvalidRequest("Must specify at least one configuration.")
    return PublicAccessBlock(**found)


def writePublicAccessBlock(block: PublicAccessBlock) -> Document:
    """Write a public access block."""
    values = {name: getattr(block, attribute) for name, attribute in _BLOCK.items()}
    return group(
        "PublicAccessBlockConfiguration",
        pairs(**{name: "true" if on else "false" for name, on in values.items()}),
    )
