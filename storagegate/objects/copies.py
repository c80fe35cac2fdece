"""The access decision on the attributes that a copy has without naming them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from storagegate.objects.service import ObjectService
from storagegate.objects.tags import decodeTags
from storagegate.storage.records import ObjectRecord

if TYPE_CHECKING:
    # Imported with the first policy.
    from storagegate.objects.access.context import Caller


class _CopyCaller:
    """A L{Caller} with the attributes that its copy has."""

    def __init__(
        self, caller: "Caller", headers: Mapping[bytes, bytes], tags: Mapping[str, str]
    ) -> None:
        self._caller = caller
        self.headers = headers
        self.requestTags = tags

    def __getattr__(self, name: str) -> Any:
        return getattr(self._caller, name)


async def checkTaken(
    objects: ObjectService,
    caller: "Caller",
    source: ObjectRecord,
    versionId: str | None,
    bucket: str,
    key: bytes,
    *,
    takesTags: bool = True,
    storageClass: str | None = "",
) -> None:
    """
    Decide on the attributes that a copy has without naming them, as if the request named them: the
    storage class, and the tags of its source, which require the rights to read and to set them.

    @param objects: Looks up the objects and decides.
    @param source: The object as it was looked up.
    @param versionId: The version that the request names; L{None} for the current version.
    @param bucket: The bucket of the copy.
    @param key: The key of the copy.
    @param storageClass: The class of the copy; empty for the class of its source, L{None} if the
        request names the class.
    @raise AccessDenied: The caller lacks one of the rights.
    """
    tags = decodeTags(source.attributes.tags) if takesTags else {}
    if not tags and storageClass is None:
        return
    headers = caller.headers
    if storageClass is not None:
        wanted = storageClass or source.attributes.storageClass
        headers = {**headers, b"x-amz-storage-class": wanted.encode("ascii")}
    writer: Any = _CopyCaller(caller, headers, tags if takesTags else caller.requestTags)
    await objects.bucket(writer, bucket, key, "CopyObject")
    if tags:
        await objects.object(caller, source.bucket, source.key, versionId, "GetObjectTagging")
        await objects.bucket(writer, bucket, key, "PutObjectTagging")
