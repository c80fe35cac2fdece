"""
The statements of the catalog by name, for each kind of connection, and the errors for the status
numbers that the functions of the schema return.
"""

from storagegate.storage.errors import (
    BucketChanged,
    BucketLocked,
    BucketNotEmpty,
    BucketNotLocked,
    BucketNotVersioned,
    ConcurrentChange,
    IdentitiesChanged,
    InvalidPart,
    KeyExists,
    NoSuchBucket,
    NoSuchKey,
    NoSuchUpload,
    ObjectLocked,
    PreconditionFailed,
    SettingsChanged,
    StoreError,
)

STATUSES: dict[int, type[StoreError]] = {
    1: NoSuchBucket,
    2: PreconditionFailed,
    3: NoSuchKey,
    4: ConcurrentChange,
    5: BucketNotLocked,
    6: ObjectLocked,
    7: NoSuchUpload,
    8: InvalidPart,
    9: BucketNotEmpty,
    10: BucketLocked,
    11: BucketNotVersioned,
    12: KeyExists,
    13: BucketChanged,
    14: SettingsChanged,
    15: IdentitiesChanged,
}


def _call(function: str, count: int) -> str:
    return f"SELECT * FROM {function}({', '.join(f'${n}' for n in range(1, count + 1))})"


FENCE = b"fence"
STANDBY = b"standby"
LOCK_UPLOADS = b"lockuploads"
LOCK_BLOBS = b"lockblobs"

WRITES = {
    # Runs after the lock, in a separate statement with a newer snapshot. A division by zero refuses
    # the transaction if a lease has ended.
    FENCE: """
        SELECT 1 / (count(*) = cardinality($1::bigint[]))::int FROM leases
        WHERE id = ANY ($1::bigint[]) AND alive
    """,
    # The root of a negative number refuses the transaction, with a code of its own.
    STANDBY: "SELECT sqrt((current_setting('synchronous_standby_names') <> '')::int - 1)",
    LOCK_UPLOADS: """
        SELECT FROM uploads WHERE uploadid = ANY ($1::text[])
        ORDER BY uploadid, bucketid, key FOR UPDATE
    """,
    LOCK_BLOBS: "SELECT FROM blobs WHERE id = ANY ($1::text[]) ORDER BY id FOR UPDATE",
    b"put": _call("storeobject", 24),
    b"remove": _call("removeobject", 19),
    b"puttags": _call("puttags", 5),
    b"puttagsofseen": """
        UPDATE objects SET tags = $5::text
        WHERE bucketid = (SELECT id FROM buckets WHERE name = $1::text) AND key = $2::bytea
            AND sequence = $3::bigint AND coalesce(tags, '') = $4::text
        RETURNING true
    """,
    b"putacl": _call("putacl", 5),
    b"putretention": _call("putretention", 8),
    b"putlegalhold": _call("putlegalhold", 5),
    b"createupload": _call("createupload", 8),
    b"putpart": _call("putpart", 11),
    b"abortupload": _call("abortupload", 4),
    b"completeupload": _call("completeupload", 24),
    b"createbucket": _call("createbucket", 8),
    b"placebucket": _call("placebucket", 1),
    b"deletebucket": _call("deletebucket", 1),
    b"hasbucket": "SELECT id FROM buckets WHERE name = $1::text",
    b"setversioning": _call("setversioning", 2),
    b"putsettings": _call("putsettings", 3),
    # A bucket without a name does not exist, so nothing is stored if a setting differs.
    b"changesettings": """
        SELECT CASE WHEN found.differs THEN 14 ELSE done.rstatus END, done.rgeneration
        FROM (
            SELECT EXISTS (
                SELECT FROM unnest($4::text[], $5::bytea[]) AS each (name, document)
                LEFT JOIN buckets AS b ON b.name = $1::text
                LEFT JOIN bucketsettings AS s ON s.bucketid = b.id AND s.name = each.name
                WHERE s.document IS DISTINCT FROM each.document
            ) AS differs
        ) AS found,
        LATERAL putsettings(
            CASE WHEN found.differs THEN NULL ELSE $1::text END, $2::text[], $3::bytea[]
        ) AS done
    """,
    b"setobjectlock": _call("setobjectlock", 2),
    b"addaccesskey": _call("addaccesskey", 1),
    b"changeaccesskey": _call("changeaccesskey", 1),
    b"putidentities": _call("putidentities", 8),
    b"notekeyuses": """
        INSERT INTO keyuses SELECT k.accesskey, u.used
        FROM unnest($1::text[], $2::bigint[]) AS u (name, used)
            JOIN issuedkeys AS k ON k.accesskey = u.name
        ORDER BY k.accesskey
        ON CONFLICT (accesskey) DO UPDATE
            SET lastusedms = greatest(keyuses.lastusedms, excluded.lastusedms)
    """,
    b"removeaccesskey": _call("removeaccesskey", 1),
    b"forgetblobs": "DELETE FROM blobs WHERE refs <= 0 AND id = ANY ($1::text[])",
    b"markcorrupt": "UPDATE blobs SET damaged = true WHERE id = ANY ($1::text[])",
    b"clearcorrupt": """
        WITH cleared AS (
            UPDATE blobs SET damaged = false WHERE damaged AND id = ANY ($1::text[]) RETURNING id
        )
        SELECT pg_notify('blobs', id) FROM cleared
    """,
    b"startwatch": _call("startwatch", 2),
    b"stopwatch": _call("stopwatch", 2),
    b"movewatches": _call("movewatches", 2),
    b"addconsolerecord": _call("addconsolerecord", 10),
    b"replaceconsolerecord": """
        UPDATE consolerecords SET expiresms = greatest(expiresms, $3::bigint), document = $4::bytea
        WHERE kind = $1::text AND id = $2::text RETURNING true
    """,
    b"removeconsolerecord": _call("removeconsolerecord", 2),
    b"putprogress": """
        INSERT INTO progress VALUES ($1::text, $2::bytea)
        ON CONFLICT (task) DO UPDATE SET document = excluded.document
    """,
}
"""The statements of write connections."""

_FOUND = (
    "o.sequence, o.numbered, o.size, o.etag, o.modifiedms, o.account, o.attributes, o.segments,"
    " o.inline, o.storagechecksum, o.tags, o.acl, o.retainmode, o.retainuntilms, o.legalhold"
)


def _versionSQL(condition: str) -> str:
    where = f"WHERE o.bucketid = b.id AND o.key = $2::bytea AND {condition}"
    return f"""
        SELECT b.described, o.* FROM buckets AS b LEFT JOIN LATERAL (
            SELECT {_FOUND}, false AS deletemarker FROM objects AS o {where}
            UNION ALL SELECT {_FOUND}, deletemarker FROM versions AS o {where}
        ) AS o ON true WHERE b.name = $1::text
    """


_MARKER = f"""
    SELECT b.described, {_FOUND}, o.deletemarker FROM buckets AS b JOIN LATERAL (
        SELECT * FROM versions AS v WHERE v.bucketid = b.id AND v.key = $2::bytea
        ORDER BY v.sequence DESC LIMIT 1
    ) AS o ON o.deletemarker AND o.noncurrentms IS NULL WHERE b.name = $1::text
"""

# The server does not parse attributes as JSON, because it rejects an escaped NUL.
_COMPLETED = f"""
    SELECT b.described, o.* FROM buckets AS b JOIN LATERAL (
        SELECT {_FOUND}, false AS deletemarker FROM objects AS o
            WHERE o.bucketid = b.id AND o.key = $2::bytea
            AND position($3::text IN o.attributes) > 0
        UNION ALL SELECT {_FOUND}, deletemarker FROM versions AS o
            WHERE o.bucketid = b.id AND o.key = $2::bytea
            AND position($3::text IN o.attributes) > 0
    ) AS o ON true WHERE b.name = $1::text
"""

LOOKUPS = {
    b"bucket": "SELECT described FROM buckets WHERE name = $1::text",
    # The limit makes the server plan one look-up after the other.
    b"objects": f"""
        SELECT o.*, w.n FROM unnest($1::text[], $2::bytea[]) WITH ORDINALITY AS w (bucket, key, n)
        LEFT JOIN LATERAL (
            SELECT b.described, {_FOUND}, false FROM buckets AS b
            LEFT JOIN objects AS o ON o.bucketid = b.id AND o.key = w.key
            WHERE b.name = w.bucket LIMIT 1
        ) AS o ON true
    """,
    b"version": _versionSQL("o.sequence = $3::bigint"),
    b"null": _versionSQL("NOT o.numbered"),
    b"marker": _MARKER,
    b"completed": _COMPLETED,
    b"shard": "SELECT shard FROM directory WHERE bucket = $1::text",
    b"settings": """
        SELECT b.generation, s.name, s.document FROM buckets AS b
        LEFT JOIN bucketsettings AS s ON s.bucketid = b.id WHERE b.name = $1::text
    """,
    b"upload": """
        SELECT u.account, u.startedms, u.attributes, u.checksumalgorithm, u.checksumkind
        FROM buckets AS b JOIN uploads AS u ON u.bucketid = b.id
        WHERE b.name = $1::text AND u.key = $2::bytea AND u.uploadid = $3::text
    """,
    b"accesskeys": """
        SELECT m.number, to_json(k) FROM meta AS m
        LEFT JOIN issuedkeys AS k ON true WHERE m.name = 'keysgeneration' ORDER BY k.accesskey
    """,
    b"identities": """
        SELECT m.number, a.account, a.revision, i.kind, i.name, i.document FROM meta AS m
        LEFT JOIN identities AS a ON a.kind = 'account' AND a.revision > $1::bigint
        LEFT JOIN identities AS i ON i.account = a.account
        WHERE m.name = 'keysgeneration'
    """,
    b"keyuses": "SELECT accesskey, lastusedms FROM keyuses",
    b"keysgeneration": "SELECT number FROM meta WHERE name = 'keysgeneration'",
    b"knownblobs": "SELECT id FROM blobs WHERE id = ANY ($1::text[])",
    b"blobrow": "SELECT size, crc, refs, damaged FROM blobs WHERE id = $1::text",
    b"consolerecord": """
        SELECT kind, id, owner, expiresms, document FROM consolerecords
        WHERE kind = $1::text AND id = $2::text
    """,
    b"consolerecords": """
        SELECT kind, id, owner, expiresms, document FROM consolerecords
        WHERE kind = $1::text AND ($2::text IS NULL OR owner = $2::text)
    """,
    b"progress": "SELECT document FROM progress WHERE task = $1::text",
    b"takelease": """
        INSERT INTO leases (node, expires, high, readsfrom) VALUES ($1::text,
            clock_timestamp() + $2::float8 * interval '1 s', $3::bigint,
            pg_snapshot_xmin(pg_current_snapshot())::text::bigint) RETURNING id, readsfrom
    """,
    b"renewlease": """
        UPDATE leases SET expires = clock_timestamp() + $2::float8 * interval '1 s',
            low = $3::bigint, high = greatest(high, $4::bigint), readsfrom = $5::bigint
        WHERE id = $1::bigint AND alive
        RETURNING pg_snapshot_xmin(pg_current_snapshot())::text::bigint
    """,
    b"reserve": """
        UPDATE leases SET high = greatest(high, $2::bigint)
        WHERE id = $1::bigint AND alive RETURNING high
    """,
}
"""The statements of the connection for look-ups and the lease."""

_LISTED = "key, size, etag, modifiedms, account, storageclass, checksumalgorithm, checksumkind"

# There is no row if the bucket does not exist, and one row with a NULL key if it has no keys. Rows
# of columns cost the server a tenth of one JSON text, and the reactor twice as much: 0.6 ms for a
# thousand.


def _flatSQL(more: str) -> str:
    return f"""
        SELECT o.* FROM buckets AS b LEFT JOIN LATERAL (
            SELECT {_LISTED} {more} FROM objects
            WHERE bucketid = b.id AND key >= $2::bytea AND key < $3::bytea
            ORDER BY key LIMIT $4::int
        ) AS o ON true WHERE b.name = $1::text
    """


def _groupedSQL(more: str, isTyped: str) -> str:
    return f"""
        SELECT o.* FROM buckets AS b LEFT JOIN LATERAL (
            SELECT {_LISTED} {more}, part FROM
                listed(b.id, $2::bytea, $3::bytea, $5::bytea, $6::int, $4::int, {isTyped})
        ) AS o ON true WHERE b.name = $1::text
    """


_VERSION = f"{_LISTED}, NULL::bytea AS part, sequence, numbered"


def _stackSQL(bucket: str, where: str) -> str:
    """
    Return a SELECT for a page of versions, in order. Each table is read in index order and no
    further than the page. A common sort would read all versions of the range.
    """
    return f"""
        SELECT * FROM (
            (SELECT {_VERSION}, false AS deletemarker, true AS latest FROM objects
                WHERE bucketid = {bucket} AND {where} ORDER BY key LIMIT $4::int)
            UNION ALL
            (SELECT {_VERSION}, deletemarker, noncurrentms IS NULL FROM versions
                WHERE bucketid = {bucket} AND {where}
                ORDER BY key, sequence DESC LIMIT $4::int)
        ) AS either ORDER BY key, sequence DESC LIMIT $4::int
    """


def _versionsSQL(where: str) -> str:
    return f"""
        SELECT o.* FROM buckets AS b LEFT JOIN LATERAL ({_stackSQL("b.id", where)})
            AS o ON true WHERE b.name = $1::text
    """


# The rows come in the order of the loops, whose outer one runs over a function. Sorting would read
# a page for each key instead of one in total.
_GROUPED_VERSIONS = f"""
    SELECT o.* FROM buckets AS b LEFT JOIN LATERAL (
        SELECT v.key, v.size, v.etag, v.modifiedms, v.account, v.storageclass,
            v.checksumalgorithm, v.checksumkind, step.part, v.sequence, v.numbered,
            v.deletemarker, v.latest
        FROM steps(b.id, $2::bytea, $3::bytea, $5::bytea, $6::int, $4::int, false) AS step
        LEFT JOIN LATERAL ({_stackSQL("b.id", "key = step.key")}) AS v ON step.part IS NULL
        LIMIT $4::int
    ) AS o ON true WHERE b.name = $1::text
"""

_UPLOADS = """
    SELECT o.* FROM buckets AS b LEFT JOIN LATERAL (
        SELECT step.key, step.part, u.uploadid, u.account, u.startedms, u.attributes,
            u.checksumalgorithm, u.checksumkind
        FROM steps(b.id, $2::bytea, $3::bytea, $5::bytea, $6::int, $4::int, true) AS step
        LEFT JOIN LATERAL (
            SELECT * FROM uploads AS u WHERE u.bucketid = b.id AND u.key = step.key
            AND (u.key > $7::bytea OR u.uploadid > $8::text) ORDER BY u.uploadid LIMIT $4::int
        ) AS u ON step.part IS NULL
        WHERE step.part IS NOT NULL OR u.uploadid IS NOT NULL LIMIT $4::int
    ) AS o ON true WHERE b.name = $1::text
"""


def _bucketsSQL(account: str) -> str:
    return f"""
        SELECT described FROM buckets WHERE name >= $1::text AND name < $2::text {account}
        ORDER BY name LIMIT $3::int
    """


def _inlineSQL(table: str) -> str:
    columns = "bucketid, key, sequence, storagechecksum, inline"
    return f"""
        SELECT o.bucketid, o.key, o.sequence, b.name, o.storagechecksum, o.inline FROM (
            (SELECT {columns} FROM {table} WHERE inline IS NOT NULL AND bucketid = $1::bigint
                AND key = $2::bytea AND sequence < $3::bigint ORDER BY sequence DESC LIMIT $4::int)
            UNION ALL
            (SELECT {columns} FROM {table} WHERE inline IS NOT NULL
                AND (bucketid, key) > ($1::bigint, $2::bytea)
                ORDER BY bucketid, key, sequence DESC LIMIT $4::int)
            ORDER BY bucketid, key, sequence DESC LIMIT $4::int
        ) AS o LEFT JOIN buckets AS b ON b.id = o.bucketid ORDER BY bucketid, key, sequence DESC
    """


def _expirySQL(where: str) -> str:
    last = "size, modifiedms, {}, coalesce(tags, ''), retainuntilms, legalhold::int"
    return f"""
        SELECT o.* FROM buckets AS b CROSS JOIN LATERAL (
            (SELECT key, sequence, numbered, 0, {last.format("NULL::bigint")} FROM objects
                WHERE bucketid = b.id AND {where} ORDER BY key LIMIT $2::int)
            UNION ALL
            (SELECT key, sequence, numbered, deletemarker::int, {last.format("noncurrentms")}
                FROM versions WHERE bucketid = b.id AND {where}
                ORDER BY key, sequence DESC LIMIT $2::int)
            ORDER BY key, sequence DESC LIMIT $2::int
        ) AS o WHERE b.name = $1::text
    """


_ADDED = "coalesce(sum(objects), 0) AS objects, coalesce(sum(bytes), 0) AS bytes"
_ADDED_UPLOADS = (
    "coalesce(sum(uploads), 0) AS uploads, coalesce(sum(uploadbytes), 0) AS uploadbytes"
)
_COUNTS = "(SELECT * FROM usage UNION ALL SELECT * FROM usagedeltas) AS each"

LISTS = {
    b"hasbucket": "SELECT id FROM buckets WHERE name = $1::text",
    b"buckets": _bucketsSQL(""),
    b"bucketsof": _bucketsSQL("AND account = $4::text"),
    b"flat": _flatSQL(""),
    b"flattyped": _flatSQL(", attributes"),
    b"grouped": _groupedSQL("", "false"),
    b"groupedtyped": _groupedSQL(", attributes", "true"),
    b"versions": _versionsSQL("key >= $2::bytea AND key < $3::bytea"),
    b"olderversions": _versionsSQL("key = $2::bytea AND sequence < $3::bigint"),
    b"groupedversions": _GROUPED_VERSIONS,
    b"nullsequence": """
        SELECT o.sequence FROM buckets AS b CROSS JOIN LATERAL (
            SELECT sequence FROM objects WHERE bucketid = b.id AND key = $2::bytea AND NOT numbered
            UNION ALL
            SELECT sequence FROM versions WHERE bucketid = b.id AND key = $2::bytea
                AND NOT numbered
        ) AS o WHERE b.name = $1::text
    """,
    b"uploads": _UPLOADS,
    b"parts": """
        SELECT (SELECT coalesce(json_agg(json_build_array(number, size, etag, modifiedms, checksum,
            segments)), '[]')::text FROM (SELECT * FROM parts AS p WHERE p.bucketid = u.bucketid
            AND p.key = u.key AND p.uploadid = u.uploadid AND p.number > $4::int
            ORDER BY number LIMIT $5::int) AS p)
        FROM buckets AS b JOIN uploads AS u ON u.bucketid = b.id
        WHERE b.name = $1::text AND u.key = $2::bytea AND u.uploadid = $3::text
    """,
    b"referenced": "SELECT id FROM blobs WHERE refs > 0 AND id = ANY ($1::text[])",
    b"garbage": """
        SELECT id FROM blobs WHERE refs <= 0 AND id > $1::text
        AND NOT EXISTS (SELECT FROM holds WHERE blob = id) ORDER BY id LIMIT $2::int
    """,
    b"blobrows": """
        SELECT id, size, crc, refs, damaged FROM blobs WHERE id > $1::text ORDER BY id LIMIT $2::int
    """,
    b"inline": _inlineSQL("objects"),
    b"inlineversions": _inlineSQL("versions"),
    b"usage": f"""
        SELECT b.name, coalesce(u.objects, 0)::bigint, coalesce(u.bytes, 0)::bigint,
            coalesce(u.uploads, 0)::bigint, coalesce(u.uploadbytes, 0)::bigint
        FROM (SELECT id, name FROM buckets ORDER BY id LIMIT $1::int) AS b
        LEFT JOIN (SELECT bucketid, {_ADDED}, {_ADDED_UPLOADS} FROM {_COUNTS} GROUP BY bucketid)
            AS u ON u.bucketid = b.id ORDER BY b.id
    """,
    b"otherusage": f"""
        SELECT objects::bigint, bytes::bigint, uploads::bigint, uploadbytes::bigint FROM (
            SELECT {_ADDED}, {_ADDED_UPLOADS} FROM {_COUNTS}
            WHERE bucketid IN (SELECT id FROM buckets ORDER BY id OFFSET $1::int)) AS u
    """,
    b"countolder": """
        SELECT count(*), (count(*) FILTER (WHERE NOT deletemarker))::bigint,
            coalesce(sum(size), 0)::bigint
        FROM (SELECT v.deletemarker, v.size FROM versions AS v
            WHERE v.bucketid = (SELECT id FROM buckets WHERE name = $1::text)
            LIMIT $2::int) AS scanned
    """,
    b"keycount": "SELECT count(*) FROM issuedkeys",
    b"expiryolder": _expirySQL("key = $3::bytea AND sequence < $4::bigint"),
    b"expiryfrom": _expirySQL("key > $3::bytea AND key >= $4::bytea AND key < $5::bytea"),
    b"expiryfirst": _expirySQL("key >= $3::bytea AND key >= $4::bytea AND key < $5::bytea"),
    b"bucketswith": """
        SELECT b.name FROM buckets AS b WHERE b.name > $2::text AND EXISTS (SELECT FROM
            bucketsettings AS s WHERE s.bucketid = b.id AND s.name = $1::text)
        ORDER BY b.name LIMIT $3::int
    """,
}
"""The statements of the connection for listings and notifications."""

CLUSTER = {
    b"lapsed": """
        SELECT id FROM leases WHERE alive AND expires < clock_timestamp() ORDER BY id LIMIT 100
    """,
    b"endlease": """
        UPDATE leases SET alive = false
        WHERE id = $1::bigint AND alive AND ($2::bool OR expires < clock_timestamp())
    """,
    b"ended": "SELECT id, low, high FROM leases WHERE NOT alive ORDER BY id LIMIT 100",
    b"forgetlease": "DELETE FROM leases WHERE id = $1::bigint AND NOT alive",
    b"forgetholds": "DELETE FROM holds WHERE lease = $1::bigint",
    b"dropwatches": _call("dropwatches", 1),
    b"trimevents": _call("trimevents", 1),
    b"settled": "UPDATE leases SET low = $2::bigint WHERE id = $1::bigint AND NOT alive",
    b"fold": _call("fold", 1),
    b"foldusage": "SELECT foldusage()",
    b"hold": """
        INSERT INTO holds SELECT each, $1::bigint FROM unnest($2::text[]) AS each
        WHERE EXISTS (SELECT FROM leases WHERE id = $1::bigint AND alive)
        ON CONFLICT DO NOTHING
    """,
    b"release": "DELETE FROM holds WHERE lease = $1::bigint AND blob = ANY ($2::text[])",
    # If another node has the job, nothing is written.
    b"claimjob": """
        INSERT INTO jobs SELECT $1::text, $2::bigint,
            clock_timestamp() + $3::float8 * interval '1 s'
        WHERE EXISTS (SELECT FROM leases WHERE id = $2::bigint AND alive) AND NOT EXISTS (
            SELECT FROM jobs AS j JOIN leases AS l ON l.id = j.lease WHERE j.name = $1::text
            AND j.lease <> $2::bigint AND j.until >= clock_timestamp() AND l.alive)
        ON CONFLICT (name) DO UPDATE SET lease = excluded.lease, until = excluded.until
        WHERE jobs.lease = excluded.lease OR jobs.until < clock_timestamp()
            OR NOT EXISTS (SELECT FROM leases WHERE id = jobs.lease AND alive)
        RETURNING lease
    """,
    b"releasejob": "DELETE FROM jobs WHERE name = $1::text AND lease = $2::bigint",
    b"nodes": """
        SELECT id, node, alive, extract(epoch FROM expires - clock_timestamp())::float8, low, high
        FROM leases ORDER BY id
    """,
    b"replication": """
        SELECT current_setting('synchronous_standby_names'),
            (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum'))
    """,
    b"backlog": """
        SELECT (SELECT count(*) FROM freed), (SELECT count(*) FROM blobs WHERE refs <= 0),
            (SELECT count(*) FROM holds)
    """,
}
"""The statements for leases, sweeping, collecting and jobs, on the connection for listings."""
