"""The decision on what a copy takes over from its source, for all that copy objects."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from storagegate.s3.attributes import STORAGE_CLASS
from storagegate.s3.objects import ObjectService
from storagegate.s3.tags import decodeTags
from storagegate.storage.records import ObjectRecord

if TYPE_CHECKING:
    # Imported with the first policy.
    from storagegate.s3.access.context import Caller


class _CopyCaller:
    """A L{Caller} that names what its copy takes over."""

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
    takesClass: bool = True,
) -> None:
    """
    Decide on what a copy takes over from its source, as on what a request names: its class of
    storage and its tags, which are read, and put.

    @param objects: Finds, and decides.
    @param source: As it was looked up.
    @param versionId: That the request names; L{None} for the current one.
    @param bucket: Of the copy.
    @param key: Of the copy.
    @raise S3Error: C{AccessDenied}.
    """
    tags = decodeTags(source.attributes.tags) if takesTags else {}
    if not (tags or takesClass):
        return
    headers = caller.headers
    if takesClass:
        storageClass = source.attributes.storageClass.encode("ascii")
        headers = {**headers, STORAGE_CLASS: storageClass}
    writer: Any = _CopyCaller(caller, headers, tags if takesTags else caller.requestTags)
    await objects.bucket(writer, bucket, key, "CopyObject")
    if tags:
        await objects.object(caller, source.bucket, source.key, versionId, "GetObjectTagging")
        await objects.bucket(writer, bucket, key, "PutObjectTagging")
