"""
Listings, each read by one statement. All functions may run in a pool thread.

A listing is returned as one JSON text, because each row that a thread fetches releases the GIL: a
thousand times per page.

A listing with a delimiter skips whole groups. A group is all keys with the same common prefix: up
to and including the first delimiter after the query's prefix. From a key the walk seeks the next
key, and from a group the first key after the group, so its time is proportional to the page. Keys
are UTF-8, which never contains the byte FF: every key that begins with C{x} sorts before C{x ||
FF}, and the next possible key after C{x} is C{x || 00}.
"""

import sys
from collections.abc import Sequence
from operator import attrgetter
from sqlite3 import Connection

import msgspec

from storagegate.storage.embedded.buckets import BUCKET_JSON, bucketId
from storagegate.storage.embedded.versions import NULL
from storagegate.storage.errors import NoSuchUpload
from storagegate.storage.ranges import ObjectRange, PartRange, UploadRange, VersionRange
from storagegate.storage.records import (
    Attributes,
    Bucket,
    Checksum,
    Content,
    ListedObject,
    ListedVersion,
    MultipartUpload,
    ObjectListing,
    Part,
    UploadListing,
    VersionListing,
)
from storagegate.storage.rows import cutPage, readAttributes, readSegments
from storagegate.storage.versionids import VersionIds


def walkSQL(*tables: str) -> str:
    """
    Return a C{WITH} clause that defines C{step(n, key, part)}: the steps in order, where C{part} is
    the common prefix, or C{NULL} if the step is a key.

    @param tables: Tables with an index on C{bucketId} and C{key}; the walk covers the keys of all
        of them.
    """
    behind = f"CAST(coalesce({_PART} || x'ff', walk.key || x'00') AS BLOB)"
    return f"""
    WITH RECURSIVE walk(n, key) AS (
        SELECT 1, {_nextKey(tables, ":floor")}
        UNION ALL
        SELECT n + 1, {_nextKey(tables, behind)}
        FROM walk WHERE walk.key IS NOT NULL AND n < :most
    ), step(n, key, part) AS (
        SELECT n, key, {_PART} FROM walk WHERE key IS NOT NULL
    )
    """


def _nextKey(tables: Sequence[str], floor: str) -> str:
    """
    Return an expression for the first key of the tables at or after a floor; C{NULL} at the end.
    """
    keys = [
        f"(SELECT next.key FROM {table} AS next"
        f" WHERE next.bucketId = :bucket AND next.key < :end AND next.key >= {floor}"
        " ORDER BY next.key LIMIT 1)"
        for table in tables
    ]
    if len(keys) == 1:
        return keys[0]
    # Every key sorts before the byte FF.
    found = ", ".join(f"ifnull({key}, x'ff')" for key in keys)
    return f"nullif(min({found}), x'ff')"


# NULL if the delimiter is absent (nullif), because arithmetic with NULL is NULL.
_PART = """substr(walk.key, 1, :behind - 2 + length(:delimiter)
    + nullif(instr(substr(walk.key, :behind), :delimiter), 0))"""


# The members of ListedObject, in order.
_LISTED = """
    CAST(o.key AS TEXT) AS name, o.size, o.etag, o.modifiedMs, o.account, o.storageClass,
    o.checksumAlgorithm, o.checksumKind
"""
_SHOWN = "name, size, etag, modifiedMs, account, storageClass, checksumAlgorithm, checksumKind"

# The content type requires parsing each row's attributes, so a listing includes it only on request.
_TYPED = f"""{_LISTED},
    ifnull(json_extract(o.attributes, '$.contentType'), '{Attributes().contentType}') AS contentType
"""
_TYPED_SHOWN = f"{_SHOWN}, contentType"


def _flatSQL(columns: str, shown: str) -> str:
    return f"""
        SELECT json_group_array(json_array({shown})), '[]' FROM (
            SELECT {columns} FROM objects AS o
            WHERE o.bucketId = :bucket AND o.key >= :floor AND o.key < :end
            ORDER BY o.key LIMIT :most)
    """


def _groupedSQL(columns: str, shown: str) -> str:
    return f"""
        {walkSQL("objects")}
        SELECT json_group_array(json_array({shown})) FILTER (WHERE part IS NULL),
            json_group_array(CAST(part AS TEXT)) FILTER (WHERE part IS NOT NULL)
        FROM (
            SELECT step.part, {columns} FROM step
            LEFT JOIN objects AS o
                ON step.part IS NULL AND o.bucketId = :bucket AND o.key = step.key
            ORDER BY step.n)
    """


# By whether content types are included: the statements without and with a delimiter.
_OBJECTS = {
    False: (_flatSQL(_LISTED, _SHOWN), _groupedSQL(_LISTED, _SHOWN)),
    True: (_flatSQL(_TYPED, _TYPED_SHOWN), _groupedSQL(_TYPED, _TYPED_SHOWN)),
}

_VERSION = f"{_LISTED}, o.versionId, o.sequence, o.deleteMarker"
_VERSION_SHOWN = f"{_SHOWN}, versionId, sequence, deleteMarker, latest"

# In key order, the current objects and the other versions of the same key range, no more than fill
# a page. Merging both in SQLite would take half as long again.
_VERSIONS = f"""
    SELECT
        (SELECT json_group_array(json_array({_VERSION_SHOWN})) FROM (
            SELECT {_VERSION}, 1 AS latest FROM objects AS o
            WHERE o.bucketId = :bucket AND o.key >= :floor AND o.key <= ifnull(
                (SELECT key FROM versions
                WHERE bucketId = :bucket AND key >= :floor AND key < :end
                ORDER BY key LIMIT 1 OFFSET :most - 1), :end)
            ORDER BY o.key LIMIT :most)),
        (SELECT json_group_array(json_array({_VERSION_SHOWN})) FROM (
            SELECT {_VERSION}, o.noncurrentMs IS NULL AS latest FROM versions AS o
            WHERE o.bucketId = :bucket AND o.key >= :floor AND o.key < :end
            ORDER BY o.key, o.sequence DESC LIMIT :most))
"""

# The versions of one key that are older than a version.
_OLDER_VERSIONS = f"""
    SELECT json_group_array(json_array({_VERSION_SHOWN})), '[]' FROM (
        SELECT {_VERSION}, 1 AS latest FROM objects AS o
        WHERE o.bucketId = :bucket AND o.key = :key AND o.sequence < :sequence
        UNION ALL
        SELECT {_VERSION}, o.noncurrentMs IS NULL FROM versions AS o
        WHERE o.bucketId = :bucket AND o.key = :key AND o.sequence < :sequence
        ORDER BY sequence DESC LIMIT :most)
"""

# The rows come in loop order, like the uploads below: a current object is newer than all versions
# of its key.
_EITHER = ", ".join(
    f"coalesce(o.{column}, v.{column}) AS {column}"
    for column in [
        "size",
        "etag",
        "modifiedMs",
        "account",
        "storageClass",
        "checksumAlgorithm",
        "checksumKind",
        "versionId",
        "sequence",
        "deleteMarker",
    ]
)
_GROUPED_VERSIONS = f"""
    {walkSQL("objects", "versions")}
    SELECT
        (SELECT json_group_array(json_array({_VERSION_SHOWN})) FROM (
            SELECT CAST(step.key AS TEXT) AS name, {_EITHER}, v.noncurrentMs IS NULL AS latest
            FROM step CROSS JOIN (SELECT 0 AS isOld UNION ALL SELECT 1) AS source
            LEFT JOIN objects AS o
                ON NOT isOld AND part IS NULL AND o.bucketId = :bucket AND o.key = step.key
            LEFT JOIN versions AS v
                ON isOld AND part IS NULL AND v.bucketId = :bucket AND v.key = step.key
            WHERE coalesce(o.sequence, v.sequence) IS NOT NULL
            LIMIT :most)),
        (SELECT json_group_array(CAST(part AS TEXT)) FROM step WHERE part IS NOT NULL)
"""

# The rows come in loop order, which CROSS JOIN fixes. Sorting would read all uploads of these keys
# instead of a page.
_UPLOADS = f"""
    {walkSQL("uploads")}
    SELECT
        (SELECT json_group_array(json_array(CAST(key AS TEXT), uploadId, account, startedMs,
            attributes, checksumAlgorithm, checksumKind))
        FROM (
            SELECT u.* FROM step CROSS JOIN uploads AS u
            ON step.part IS NULL AND u.bucketId = :bucket AND u.key = step.key
                AND (u.key > :keyAfter OR u.uploadId > :idAfter)
            LIMIT :most)),
        (SELECT json_group_array(CAST(part AS TEXT)) FROM step WHERE part IS NOT NULL)
"""


def _bucketsSQL(account: str) -> str:
    return f"""
        SELECT json_group_array({BUCKET_JSON}) FROM (
            SELECT * FROM buckets WHERE {account} AND name >= :floor AND name < :end
            ORDER BY name LIMIT :limit)
    """


_ALL_BUCKETS = _bucketsSQL("TRUE")
_BUCKETS_OF = _bucketsSQL("account = :account")

_decodeObjects = msgspec.json.Decoder(list[ListedObject]).decode
_decodeVersions = msgspec.json.Decoder(list[ListedVersion]).decode
_keyOf = attrgetter("key")
_decodeChecksum = msgspec.json.Decoder(Checksum).decode
_decodeTexts = msgspec.json.Decoder(list[str]).decode
_decodeBuckets = msgspec.json.Decoder(list[Bucket]).decode
_decodeUploads = msgspec.json.Decoder(list[tuple[str, str, str, int, str, str, str]]).decode
_decodeParts = msgspec.json.Decoder(list[tuple[int, int, str, int, str | None, str | None]]).decode


def listBuckets(
    connection: Connection, account: str | None, prefix: str, after: str, limit: int
) -> list[Bucket]:
    """
    See L{ICatalog.buckets<storagegate.storage.interfaces.ICatalog.buckets>}.

    @param connection: A read connection, used in the calling thread.
    @param account: Only buckets of this account; L{None} lists all.
    @param prefix: Only names with this prefix; empty lists all.
    @param after: Names strictly after this one; empty starts at the beginning.
    @param limit: The most buckets in the result.
    """
    values = {
        "account": account,
        "floor": max(prefix, after + "\0") if after else prefix,
        "end": prefix + chr(sys.maxunicode),
        "limit": limit,
    }
    sql = _ALL_BUCKETS if account is None else _BUCKETS_OF
    return _decodeBuckets(connection.execute(sql, values).fetchall()[0][0])


def listObjects(connection: Connection, page: ObjectRange) -> ObjectListing:
    """
    See L{ICatalog.listObjects<storagegate.storage.interfaces.ICatalog.listObjects>}.

    @param connection: A read connection, used in the calling thread.
    """
    number = bucketId(connection, page.bucket)
    if page.limit <= 0:
        return ObjectListing((), (), None)
    flat, grouped = _OBJECTS[page.contentTypes]
    sql = grouped if page.delimiter else flat
    rows = connection.execute(sql, page.parameters(number, page.limit + 1)).fetchall()
    objects, prefixes = _decodeObjects(rows[0][0]), _decodeTexts(rows[0][1])
    last = cutPage(objects, lambda each: (each.key, ""), prefixes, page.limit)
    return ObjectListing(tuple(objects), tuple(prefixes), None if last is None else last[0])


def listVersions(connection: Connection, ids: VersionIds, page: VersionRange) -> VersionListing:
    """
    See L{ICatalog.listVersions<storagegate.storage.interfaces.ICatalog.listVersions>}.

    @param connection: A read connection, used in the calling thread.
    @param ids: The store's version ids.
    """
    number = bucketId(connection, page.bucket)
    after, versionAfter, limit = page.after, page.versionAfter, page.limit
    sequence = None if versionAfter is None else ids.read(versionAfter)
    if limit <= 0:
        return VersionListing((), (), None, None)
    versions: list[ListedVersion] = []
    isWithin = after.startswith(page.prefix) and page.groupOf(after) is None
    if versionAfter is not None and isWithin:
        if sequence is None:
            # If that version is gone, the whole key is listed again: duplicates are better than
            # omissions.
            sequence = _nullSequence(connection, number, after)
        values = {"bucket": number, "key": after, "sequence": sequence, "most": limit + 1}
        versions = _decodeVersions(connection.execute(_OLDER_VERSIONS, values).fetchall()[0][0])
    prefixes: list[str] = []
    if len(versions) <= limit:
        # Commits between the two reads affect other keys, or are newer than the rows already read.
        most = limit + 1 - len(versions)
        values = page.parameters(number, most)
        if page.delimiter:
            ((rows, parts),) = connection.execute(_GROUPED_VERSIONS, values).fetchall()
            versions += _decodeVersions(rows)
            prefixes = _decodeTexts(parts)
        else:
            ((current, others),) = connection.execute(_VERSIONS, values).fetchall()
            found = _decodeVersions(current) + _decodeVersions(others)
            # The sort is stable: a current object is newer than all versions of its key.
            found.sort(key=_keyOf)
            versions += found[:most]
    last = cutPage(versions, lambda each: (each.key, ""), prefixes, limit)
    if last is None:
        return VersionListing(tuple(versions), tuple(prefixes), None, None)
    isVersion = bool(versions) and versions[-1].key == last[0]
    lastVersion = ids.make(versions[-1].sequence) if isVersion else None
    return VersionListing(tuple(versions), tuple(prefixes), last[0], lastVersion)


def _nullSequence(connection: Connection, bucketId: int, key: bytes) -> int:
    """Return the write number of a key's C{null} version, or the largest number if it has none."""
    where = f"WHERE bucketId = :bucket AND key = :key AND versionId = {NULL}"
    rows = connection.execute(
        f"SELECT sequence FROM objects {where} UNION ALL SELECT sequence FROM versions {where}",
        {"bucket": bucketId, "key": key},
    ).fetchall()
    sequence: int = rows[0][0] if rows else sys.maxsize
    return sequence


def listUploads(connection: Connection, page: UploadRange) -> UploadListing:
    """
    See L{ICatalog.uploads<storagegate.storage.interfaces.ICatalog.uploads>}.

    @param connection: A read connection, used in the calling thread.
    """
    number = bucketId(connection, page.bucket)
    if page.limit <= 0:
        return UploadListing([], [], None)
    # One extra step detects a further page, and one may be spent on a key whose uploads were all
    # listed before.
    values = page.parameters(number, page.limit + 2)
    values |= {"keyAfter": page.after, "idAfter": page.idAfter}
    # Uploads in a group are not listed individually, so no page ends between two uploads of one of
    # its keys.
    if page.idAfter and page.groupOf(page.after) is None:
        values["floor"] = max(page.prefix, page.after)
    rows = connection.execute(_UPLOADS, values).fetchall()
    uploads = [
        MultipartUpload(
            page.bucket, key.encode(), uploadId, account, started, readAttributes(text), *checksum
        )
        for key, uploadId, account, started, text, *checksum in _decodeUploads(rows[0][0])
    ]
    prefixes = _decodeTexts(rows[0][1])
    last = cutPage(uploads, lambda each: (each.key.decode(), each.uploadId), prefixes, page.limit)
    return UploadListing(uploads, prefixes, last)


def listParts(connection: Connection, page: PartRange) -> list[Part]:
    """See L{ICatalog.parts<storagegate.storage.interfaces.ICatalog.parts>}."""
    rows = connection.execute(
        "SELECT (SELECT json_group_array(json_array("
        "number, size, etag, modifiedMs, checksum, segments)) FROM ("
        "SELECT * FROM parts WHERE uploadId = u.uploadId AND number > ? ORDER BY number LIMIT ?))"
        " FROM buckets AS b JOIN uploads AS u ON u.bucketId = b.id"
        " WHERE b.name = ? AND u.key = ? AND u.uploadId = ?",
        (page.after, page.limit, page.bucket, page.key, page.uploadId),
    ).fetchall()
    if not rows:
        raise NoSuchUpload
    return [
        Part(
            number,
            size,
            etag,
            modifiedMs,
            Content(size, None, readSegments(segments)),
            None if checksum is None else _decodeChecksum(checksum),
        )
        for number, size, etag, modifiedMs, checksum, segments in _decodeParts(rows[0][0])
    ]
