"""
The functions of the schema. Each implements one mutation of one key, checked and applied under the
lock of the key.

The lock is the row of the current object. If there is no row, one is inserted and deleted, so that
other transactions wait for it. In buckets that never had versioning, only existing objects are
locked.

Functions refuse with a status and never with an error, which would abort the other mutations of the
transaction; see L{storagegate.storage.cluster.statements} for the numbers. A refusal
changes nothing. Parameters begin with C{p}, results with C{r}.
"""

from storagegate.storage.cluster.bucketfunctions import BUCKETS
from storagegate.storage.cluster.eventfunctions import EVENT_FUNCTIONS
from storagegate.storage.cluster.listfunctions import LIST_FUNCTIONS
from storagegate.storage.cluster.movefunctions import MOVE_FUNCTIONS
from storagegate.storage.records import BUCKET_KEY

_RECORD = (
    "bucketid, key, sequence, numbered, size, etag, modifiedms, account, storageclass,"
    " checksumalgorithm, checksumkind, storagechecksum, attributes, segments, tags, acl,"
    " retainmode, retainuntilms, legalhold, inline"
)

_VALUES = (
    "bucket.id, pkey, nextval('writes'), rnumbered, psize, petag, pmodifiedms, paccount,"
    " pstorageclass, palgorithm, pkind, pchecksum, pattributes, psegments, ptags, pacl,"
    " rmode, runtilms, plegalhold, pinline"
)

_ROW = "WHERE bucketid = bucket.id AND key = pkey"

_PARAMETERS = """
    pbucket text, pkey bytea, psize bigint, petag text, pmodifiedms bigint, paccount text,
    pstorageclass text, palgorithm text, pkind text, pchecksum bigint, pattributes text,
    psegments text, pinline bytea, ptags text, pacl text, pretainmode text, pretainuntilms bigint,
    plegalhold boolean, pabsent boolean, petags text[], punlike text[]
"""

_RESULTS = """
    OUT rstatus int, OUT rsequence bigint, OUT rnumbered boolean, OUT rmode text,
    OUT runtilms bigint
"""

_DESCRIBE = (
    """
    CREATE FUNCTION describe() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        NEW.revision := nextval('writes');
        NEW.described := json_build_array(NEW.name, NEW.account, NEW.createdms, NEW.region,
            NEW.ownership, NEW.versioning, NEW.lockenabled, NEW.generation, NEW.revision)::text;
        RETURN NEW;
    END $$
    """,
    """
    CREATE TRIGGER describe BEFORE INSERT OR UPDATE OF name, account, createdms, region, ownership,
        versioning, lockenabled, generation ON buckets FOR EACH ROW EXECUTE FUNCTION describe()
    """,
)

_REFERENCES = (
    """
    CREATE FUNCTION giveback(psegments text) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        IF psegments IS NOT NULL THEN
            INSERT INTO freed (blob)
                SELECT each ->> 0 FROM json_array_elements(psegments::json) AS each;
        END IF;
    END $$
    """,
    # A blob without references is being removed. The rows were locked earlier, in order.
    """
    CREATE FUNCTION maycopy(pcopied text[]) RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN
        RETURN pcopied IS NULL OR (SELECT count(*) FROM blobs WHERE id = ANY (pcopied) AND refs > 0)
            = (SELECT count(DISTINCT each) FROM unnest(pcopied) AS each);
    END $$
    """,
    """
    CREATE FUNCTION refer(pnewblobs text, pcopied text[]) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        IF pnewblobs IS NOT NULL THEN
            INSERT INTO blobs (id, size, crc, refs)
                SELECT each ->> 0, (each ->> 1)::bigint, (each ->> 2)::bigint, (each ->> 3)::bigint
                FROM json_array_elements(pnewblobs::json) AS each;
        END IF;
        IF pcopied IS NOT NULL THEN
            UPDATE blobs SET refs = refs + copied.n FROM
                (SELECT each, count(*) AS n FROM unnest(pcopied) AS each GROUP BY each) AS copied
                WHERE id = copied.each;
        END IF;
    END $$
    """,
)

_JUDGE = """
    CREATE FUNCTION judge(pisthere boolean, petag text, pabsent boolean, petags text[],
        punlike text[]) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
    BEGIN
        IF NOT pisthere THEN
            RETURN CASE WHEN petags IS NULL THEN 0 ELSE 3 END;
        END IF;
        IF pabsent OR petag = ANY (punlike) OR NOT (petag = ANY (petags) OR '*' = ANY (petags)) THEN
            RETURN 2;
        END IF;
        RETURN 0;
    END $$
"""

# The end of a new version's retention, to a whole second: the same day of a later year, where 29
# February becomes 1 March, or a number of days later.
_RETENTION = """
    CREATE FUNCTION defaultretention(pbucketid bigint, pstartms bigint, OUT rmode text,
        OUT runtilms bigint) LANGUAGE plpgsql AS $$
    DECLARE
        rule json; days int; start date; later date;
    BEGIN
        SELECT convert_from(document, 'UTF8')::json INTO rule FROM bucketsettings
            WHERE bucketid = pbucketid AND name = 'objectLock';
        IF NOT FOUND THEN
            RETURN;
        END IF;
        rmode := rule ->> 'mode';
        days := coalesce((rule ->> 'days')::int, 0);
        IF coalesce((rule ->> 'years')::int, 0) > 0 THEN
            start := date '1970-01-01' + (pstartms / 86400000)::int;
            later := (start + make_interval(years => (rule ->> 'years')::int))::date;
            IF extract(day FROM later) < extract(day FROM start) THEN
                later := later + 1;
            END IF;
            days := later - start;
        END IF;
        runtilms := (pstartms + days * 86400000::bigint + 999) / 1000 * 1000;
    END $$
"""

_DROP_NULL = """
    CREATE FUNCTION dropnull(pbucketid bigint, pkey bytea) RETURNS void LANGUAGE plpgsql AS $$
    DECLARE
        old record;
    BEGIN
        DELETE FROM versions WHERE bucketid = pbucketid AND key = pkey AND NOT numbered
            RETURNING size, segments, deletemarker INTO old;
        IF FOUND AND NOT old.deletemarker THEN
            PERFORM giveback(old.segments);
            INSERT INTO usagedeltas VALUES (pbucketid, -1, -old.size, 0, 0);
        END IF;
    END $$
"""

# For a key that gets a new newest version while the top of its rows here is a delete marker.
_COVER = """
    CREATE FUNCTION cover(pbucketid bigint, pkey bytea, patms bigint) RETURNS void
        LANGUAGE plpgsql AS $$
    BEGIN
        UPDATE versions SET noncurrentms = patms WHERE bucketid = pbucketid AND key = pkey
            AND noncurrentms IS NULL AND sequence = (SELECT v.sequence FROM versions AS v
                WHERE v.bucketid = pbucketid AND v.key = pkey ORDER BY v.sequence DESC LIMIT 1);
    END $$
"""

_STORE = f"""
    CREATE FUNCTION storeobject({_PARAMETERS}, pnewblobs text, pcopied text[], prevision bigint,
        {_RESULTS})
        LANGUAGE plpgsql AS $$
    DECLARE
        bucket record; old record; isthere boolean; issuspended boolean;
    BEGIN
        SELECT id, versioning, lockenabled, revision, watched INTO bucket FROM buckets
            WHERE name = pbucket;
        IF NOT FOUND THEN
            rstatus := 1;
            RETURN;
        ELSIF prevision <> bucket.revision THEN
            rstatus := 13;
            RETURN;
        END IF;
        rstatus := 0;
        rmode := pretainmode;
        runtilms := pretainuntilms;
        rnumbered := bucket.versioning = 'Enabled';
        issuspended := bucket.versioning = 'Suspended';
        IF bucket.lockenabled THEN
            IF rmode IS NULL THEN
                SELECT * INTO rmode, runtilms FROM defaultretention(bucket.id, pmodifiedms);
            END IF;
        ELSIF rmode IS NOT NULL OR plegalhold IS NOT NULL THEN
            rstatus := 5;
            RETURN;
        END IF;
        LOOP
            -- Most writes create a new key, which needs no look-up of the row.
            IF petags IS NULL AND punlike IS NULL AND pcopied IS NULL AND bucket.versioning = ''
            THEN
                INSERT INTO objects ({_RECORD}) VALUES ({_VALUES})
                    ON CONFLICT (bucketid, key) DO NOTHING RETURNING sequence INTO rsequence;
                IF FOUND THEN
                    INSERT INTO usagedeltas VALUES (bucket.id, 1, psize, 0, 0);
                    EXIT;
                ELSIF pabsent THEN
                    rstatus := 2;
                    RETURN;
                END IF;
            END IF;
            SELECT etag, size, numbered, segments INTO old FROM objects {_ROW} FOR UPDATE;
            isthere := FOUND;
            IF pabsent OR petags IS NOT NULL OR punlike IS NOT NULL THEN
                rstatus := judge(isthere, old.etag, pabsent, petags, punlike);
            END IF;
            IF rstatus = 0 AND pcopied IS NOT NULL AND NOT maycopy(pcopied) THEN
                rstatus := 4;
            END IF;
            IF rstatus <> 0 THEN
                RETURN;
            END IF;
            IF NOT isthere THEN
                INSERT INTO objects ({_RECORD}) VALUES ({_VALUES})
                    ON CONFLICT (bucketid, key) DO NOTHING RETURNING sequence INTO rsequence;
                -- Another transaction inserted the row first.
                CONTINUE WHEN NOT FOUND;
                IF issuspended THEN
                    PERFORM dropnull(bucket.id, pkey);
                END IF;
                IF bucket.versioning <> '' THEN
                    PERFORM cover(bucket.id, pkey, pmodifiedms);
                    IF EXISTS (SELECT FROM versions {_ROW} AND sequence > rsequence) THEN
                        -- A removal that this write waited for took a later number.
                        UPDATE objects SET sequence = nextval('writes') {_ROW}
                            RETURNING sequence INTO rsequence;
                    END IF;
                END IF;
                INSERT INTO usagedeltas VALUES (bucket.id, 1, psize, 0, 0);
                EXIT;
            END IF;
            IF bucket.versioning = '' OR (issuspended AND NOT old.numbered) THEN
                IF old.segments IS NOT NULL THEN
                    PERFORM giveback(old.segments);
                END IF;
                IF psize <> old.size THEN
                    INSERT INTO usagedeltas VALUES (bucket.id, 0, psize - old.size, 0, 0);
                END IF;
            ELSE
                INSERT INTO versions ({_RECORD}, noncurrentms)
                    SELECT {_RECORD}, pmodifiedms FROM objects {_ROW};
                IF issuspended THEN
                    PERFORM dropnull(bucket.id, pkey);
                END IF;
                INSERT INTO usagedeltas VALUES (bucket.id, 1, psize, 0, 0);
            END IF;
            UPDATE objects SET ({_RECORD}) = ROW ({_VALUES}) {_ROW}
                RETURNING sequence INTO rsequence;
            EXIT;
        END LOOP;
        IF pnewblobs IS NOT NULL OR pcopied IS NOT NULL THEN
            PERFORM refer(pnewblobs, pcopied);
        END IF;
        IF bucket.watched THEN
            PERFORM journal(pbucket, pkey, psize, petag, pmodifiedms, paccount, pattributes,
                rnumbered, rsequence);
        END IF;
    END $$
"""

_REMOVE = f"""
    CREATE FUNCTION removeobject(pbucket text, pkey bytea, pisnamed boolean, psequence bigint,
        pabsent boolean, petags text[], punlike text[], psize bigint, pseconds bigint,
        paccount text, patms bigint, pbypass boolean,
        pisexpiry boolean, pesequence bigint, penoncurrentms bigint, petagset text,
        pegeneration bigint, penewer int, peisonly boolean,
        OUT rstatus int, OUT rfound boolean, OUT rsequence bigint, OUT rnumbered boolean,
        OUT rmarker boolean, OUT rchanged boolean, OUT csize bigint, OUT cetag text,
        OUT cmodifiedms bigint, OUT caccount text, OUT cattributes text, OUT cnumbered boolean,
        OUT csequence bigint) LANGUAGE plpgsql AS $$
    DECLARE
        bucket record; old record; top record; isthere boolean; iscurrent boolean;
        issuspended boolean;
    BEGIN
        SELECT id, versioning, lockenabled, generation, watched INTO bucket FROM buckets
            WHERE name = pbucket;
        IF NOT FOUND THEN
            rstatus := 1;
            RETURN;
        END IF;
        issuspended := bucket.versioning = 'Suspended';
        rmarker := false;
        rchanged := false;
        LOOP
            SELECT sequence, numbered, size, etag, modifiedms, segments, tags, retainmode,
                retainuntilms, legalhold, false AS deletemarker INTO old
                FROM objects {_ROW} FOR UPDATE;
            isthere := FOUND;
            EXIT WHEN isthere OR bucket.versioning = '';
            -- Locks the key until the end of the transaction.
            INSERT INTO objects (bucketid, key, sequence, numbered, size, etag, modifiedms, account,
                storageclass, checksumalgorithm, checksumkind, attributes)
                VALUES (bucket.id, pkey, 0, false, 0, '', 0, '', '', '', '', '')
                ON CONFLICT (bucketid, key) DO NOTHING;
            IF FOUND THEN
                DELETE FROM objects {_ROW};
                EXIT;
            END IF;
        END LOOP;
        IF pisexpiry AND NOT (
            bucket.generation = pegeneration
            AND ((penoncurrentms IS NULL AND isthere AND old.sequence = pesequence
                    AND coalesce(old.tags, '') = petagset)
                OR EXISTS (SELECT FROM versions {_ROW} AND sequence = pesequence
                    AND coalesce(tags, '') = petagset
                    AND noncurrentms IS NOT DISTINCT FROM penoncurrentms))
            AND (penewer = 0 OR penewer <= (SELECT count(*) FROM (SELECT FROM versions {_ROW}
                AND sequence > pesequence AND noncurrentms IS NOT NULL LIMIT penewer) AS newer))
            AND NOT (peisonly AND EXISTS (SELECT FROM versions {_ROW} AND sequence <> pesequence))
        ) THEN
            rstatus := 4;
            RETURN;
        END IF;
        iscurrent := isthere;
        IF pisnamed THEN
            iscurrent := isthere
                AND CASE WHEN psequence IS NULL THEN NOT old.numbered
                    ELSE old.sequence = psequence END;
            IF NOT iscurrent THEN
                SELECT sequence, numbered, size, etag, modifiedms, segments, tags, retainmode,
                    retainuntilms, legalhold, deletemarker, noncurrentms INTO old
                    FROM versions {_ROW}
                    AND CASE WHEN psequence IS NULL THEN NOT numbered
                        ELSE sequence = psequence END FOR UPDATE;
                isthere := FOUND;
            END IF;
        END IF;
        rstatus := judge(isthere, old.etag, pabsent, petags, punlike);
        IF rstatus = 0 AND isthere
            AND (psize <> old.size OR pseconds <> old.modifiedms / 1000) THEN
            rstatus := 2;
        END IF;
        IF rstatus <> 0 THEN
            RETURN;
        END IF;
        rfound := isthere;
        IF NOT pisnamed THEN
            rchanged := isthere;
            IF isthere AND (bucket.versioning = '' OR (issuspended AND NOT old.numbered)) THEN
                PERFORM giveback(old.segments);
                INSERT INTO usagedeltas VALUES (bucket.id, -1, -old.size, 0, 0);
                DELETE FROM objects {_ROW};
            ELSIF isthere THEN
                INSERT INTO versions ({_RECORD}, noncurrentms)
                    SELECT {_RECORD}, patms FROM objects {_ROW};
                DELETE FROM objects {_ROW};
            END IF;
            IF bucket.versioning <> '' THEN
                IF issuspended THEN
                    PERFORM dropnull(bucket.id, pkey);
                END IF;
                IF NOT isthere THEN
                    PERFORM cover(bucket.id, pkey, patms);
                END IF;
                rmarker := true;
                rnumbered := NOT issuspended;
                INSERT INTO versions (bucketid, key, sequence, numbered, deletemarker, size, etag,
                    modifiedms, account, storageclass, checksumalgorithm, checksumkind, attributes)
                    VALUES (bucket.id, pkey, nextval('writes'), rnumbered, true, 0, '', patms,
                        paccount, '', '', '', '{{}}') RETURNING sequence INTO rsequence;
            END IF;
            IF bucket.watched AND rchanged THEN
                PERFORM journal(pbucket, pkey, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
            END IF;
            RETURN;
        END IF;
        IF NOT isthere THEN
            RETURN;
        END IF;
        IF bucket.lockenabled AND (old.legalhold OR (old.retainuntilms > patms
                AND NOT (pbypass AND old.retainmode = 'GOVERNANCE'))) THEN
            rstatus := 6;
            RETURN;
        END IF;
        rsequence := old.sequence;
        rnumbered := old.numbered;
        rmarker := old.deletemarker;
        IF iscurrent THEN
            DELETE FROM objects {_ROW};
        ELSE
            DELETE FROM versions {_ROW} AND sequence = old.sequence;
            iscurrent := old.noncurrentms IS NULL;
        END IF;
        IF NOT rmarker THEN
            PERFORM giveback(old.segments);
            INSERT INTO usagedeltas VALUES (bucket.id, -1, -old.size, 0, 0);
        END IF;
        rchanged := iscurrent AND NOT rmarker;
        IF iscurrent AND bucket.versioning <> '' THEN
            SELECT sequence, deletemarker INTO top FROM versions {_ROW}
                ORDER BY sequence DESC LIMIT 1;
            IF NOT FOUND THEN
                NULL;
            ELSIF top.deletemarker THEN
                UPDATE versions SET noncurrentms = NULL {_ROW} AND sequence = top.sequence;
            ELSE
                INSERT INTO objects ({_RECORD})
                    SELECT {_RECORD} FROM versions {_ROW} AND sequence = top.sequence
                    RETURNING size, etag, modifiedms, account, attributes, numbered, sequence
                    INTO csize, cetag, cmodifiedms, caccount, cattributes, cnumbered, csequence;
                DELETE FROM versions {_ROW} AND sequence = top.sequence;
                rchanged := true;
            END IF;
        END IF;
        IF bucket.watched AND rchanged THEN
            PERFORM journal(pbucket, pkey, csize, cetag, cmodifiedms, caccount, cattributes,
                cnumbered, csequence);
        END IF;
    END $$
"""


def _changeSQL(name: str, parameters: str, declared: str, judged: str, assigned: str) -> str:
    """Return the statement for a function that changes columns of a version, current or not."""
    where = (
        f"{_ROW} AND (NOT pisnamed OR CASE WHEN psequence IS NULL THEN NOT numbered"
        " ELSE sequence = psequence END)"
    )
    return f"""
        CREATE FUNCTION {name}(pbucket text, pkey bytea, pisnamed boolean, psequence bigint,
            {parameters}, OUT rstatus int) LANGUAGE plpgsql AS $$
        DECLARE
            bucket record; old record;
        BEGIN
            SELECT id, lockenabled INTO bucket FROM buckets WHERE name = pbucket;
            IF NOT FOUND THEN
                rstatus := 1;
                RETURN;
            END IF;
            {declared}
            rstatus := 0;
            -- The third look finds a row that has moved between the tables since the first.
            FOR look IN 1 .. 3 LOOP
                IF look = 2 THEN
                    EXIT WHEN NOT pisnamed;
                    SELECT retainmode, retainuntilms INTO old FROM versions {where}
                        AND NOT deletemarker FOR UPDATE;
                    IF FOUND THEN
                        {judged}
                        UPDATE versions SET {assigned} {where};
                        RETURN;
                    END IF;
                ELSE
                    SELECT retainmode, retainuntilms INTO old FROM objects {where} FOR UPDATE;
                    IF FOUND THEN
                        {judged}
                        UPDATE objects SET {assigned} {where};
                        RETURN;
                    END IF;
                END IF;
            END LOOP;
            rstatus := 3;
        END $$
    """


_LOCKED = """
    IF NOT bucket.lockenabled THEN
        rstatus := 5;
        RETURN;
    END IF;
"""

_CHANGES = (
    _changeSQL("puttags", "ptags text", "", "", "tags = ptags"),
    _changeSQL("putacl", "pacl text", "", "", "acl = pacl"),
    _changeSQL("putlegalhold", "pison boolean", _LOCKED, "", "legalhold = pison"),
    _changeSQL(
        "putretention",
        "pmode text, puntilms bigint, patms bigint, pbypass boolean",
        _LOCKED,
        """
        IF old.retainuntilms > patms
            AND NOT coalesce(pmode = old.retainmode AND puntilms >= old.retainuntilms, false)
            AND (old.retainmode = 'COMPLIANCE' OR NOT pbypass) THEN
            rstatus := 6;
            RETURN;
        END IF;
        """,
        "retainmode = pmode, retainuntilms = puntilms",
    ),
)

_UPLOAD = "WHERE bucketid = pbucketid AND key = pkey AND uploadid = puploadid"

_CREATE_UPLOAD = """
    CREATE FUNCTION createupload(pbucket text, pkey bytea, puploadid text, paccount text,
        pstartedms bigint, palgorithm text, pkind text, pattributes text, OUT rstatus int)
        LANGUAGE plpgsql AS $$
    DECLARE
        number bigint;
    BEGIN
        SELECT id INTO number FROM buckets WHERE name = pbucket;
        IF NOT FOUND THEN
            rstatus := 1;
            RETURN;
        END IF;
        rstatus := 0;
        INSERT INTO uploads VALUES
            (number, pkey, puploadid, paccount, pstartedms, palgorithm, pkind, pattributes);
        INSERT INTO usagedeltas VALUES (number, 0, 0, 1, 0);
    END $$
    """

_UPLOADS = (
    # Locks the upload and returns its bucket. The row is already locked, unless it is new.
    """
    CREATE FUNCTION findupload(pbucket text, pkey bytea, puploadid text) RETURNS bigint
        LANGUAGE plpgsql AS $$
    DECLARE
        number bigint;
    BEGIN
        SELECT bucketid INTO number FROM uploads
            WHERE bucketid = (SELECT id FROM buckets WHERE name = pbucket)
            AND key = pkey AND uploadid = puploadid FOR UPDATE;
        RETURN number;
    END $$
    """,
    _CREATE_UPLOAD,
    f"""
    CREATE FUNCTION putpart(pbucket text, pkey bytea, puploadid text, pnumber int, psize bigint,
        petag text, pmodifiedms bigint, pchecksum text, psegments text, pnewblobs text,
        pcopied text[], OUT rstatus int) LANGUAGE plpgsql AS $$
    DECLARE
        pbucketid bigint := findupload(pbucket, pkey, puploadid); old record;
    BEGIN
        IF pbucketid IS NULL THEN
            rstatus := 7;
            RETURN;
        ELSIF NOT maycopy(pcopied) THEN
            rstatus := 4;
            RETURN;
        END IF;
        rstatus := 0;
        DELETE FROM parts {_UPLOAD} AND number = pnumber RETURNING size, segments INTO old;
        PERFORM giveback(old.segments);
        INSERT INTO parts VALUES (pbucketid, pkey, puploadid, pnumber, psize, petag, pmodifiedms,
            pchecksum, psegments);
        INSERT INTO usagedeltas VALUES (pbucketid, 0, 0, 0, psize - coalesce(old.size, 0));
        PERFORM refer(pnewblobs, pcopied);
    END $$
    """,
    # Frees the references of dropped parts; the references of the listed parts pass to the object.
    f"""
    CREATE FUNCTION dropupload(pbucketid bigint, pkey bytea, puploadid text, pnamed int[])
        RETURNS void LANGUAGE plpgsql AS $$
    DECLARE
        total bigint;
    BEGIN
        INSERT INTO freed (blob)
            SELECT each ->> 0 FROM parts, json_array_elements(segments::json) AS each
            {_UPLOAD} AND segments IS NOT NULL AND number <> ALL (pnamed);
        WITH gone AS (DELETE FROM parts {_UPLOAD} RETURNING size)
            SELECT coalesce(sum(size), 0) INTO total FROM gone;
        DELETE FROM uploads {_UPLOAD};
        INSERT INTO usagedeltas VALUES (pbucketid, 0, 0, -1, -total);
    END $$
    """,
    """
    CREATE FUNCTION abortupload(pbucket text, pkey bytea, puploadid text, pgeneration bigint,
        OUT rstatus int) LANGUAGE plpgsql AS $$
    DECLARE
        number bigint := findupload(pbucket, pkey, puploadid);
    BEGIN
        IF number IS NULL THEN
            rstatus := 7;
        ELSIF pgeneration <> (SELECT generation FROM buckets WHERE id = number) THEN
            rstatus := 4;
        ELSE
            rstatus := 0;
            PERFORM dropupload(number, pkey, puploadid, '{}');
        END IF;
    END $$
    """,
    f"""
    CREATE FUNCTION completeupload(puploadid text, pnumbers int[], ppartetags text[],
        {_PARAMETERS}, {_RESULTS}, OUT rsize bigint, OUT rsegments text) LANGUAGE plpgsql AS $$
    DECLARE
        pbucketid bigint := findupload(pbucket, pkey, puploadid); found bigint;
    BEGIN
        IF pbucketid IS NULL THEN
            rstatus := 7;
            RETURN;
        END IF;
        SELECT count(*), coalesce(sum(size), 0),
            '[' || string_agg(substr(segments, 2, length(segments) - 2), ',' ORDER BY place) || ']'
            INTO found, rsize, rsegments
            FROM unnest(pnumbers, ppartetags) WITH ORDINALITY AS named (number, etag, place)
            JOIN parts USING (number, etag) {_UPLOAD};
        IF found <> cardinality(pnumbers) THEN
            rstatus := 8;
            RETURN;
        END IF;
        SELECT stored.* INTO rstatus, rsequence, rnumbered, rmode, runtilms
            FROM storeobject(pbucket, pkey, rsize, petag, pmodifiedms, paccount, pstorageclass,
                palgorithm, pkind, pchecksum, pattributes, rsegments, pinline, ptags, pacl,
                pretainmode, pretainuntilms, plegalhold, pabsent, petags, punlike, NULL, NULL,
                NULL) AS stored;
        IF rstatus = 0 THEN
            PERFORM dropupload(pbucketid, pkey, puploadid, pnumbers);
        END IF;
    END $$
    """,
)

_KEYS = (
    """
    CREATE FUNCTION addaccesskey(pkey json, OUT rstatus int) LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO accesskeys SELECT * FROM json_populate_record(NULL::accesskeys, pkey)
            ON CONFLICT (accesskey) DO NOTHING;
        rstatus := CASE WHEN FOUND THEN 0 ELSE 12 END;
        IF FOUND THEN
            UPDATE meta SET number = number + 1 WHERE name = 'keysgeneration';
            PERFORM pg_notify('keys', '');
        END IF;
    END $$
    """,
    """
    CREATE FUNCTION changeaccesskey(pkey json, OUT rfound boolean) LANGUAGE plpgsql AS $$
    BEGIN
        DELETE FROM accesskeys WHERE accesskey = pkey->>'accesskey';
        rfound := FOUND;
        IF FOUND THEN
            INSERT INTO accesskeys SELECT * FROM json_populate_record(NULL::accesskeys, pkey);
            UPDATE meta SET number = number + 1 WHERE name = 'keysgeneration';
            PERFORM pg_notify('keys', '');
        END IF;
    END $$
    """,
    """
    CREATE FUNCTION removeaccesskey(paccesskey text, OUT rfound boolean) LANGUAGE plpgsql AS $$
    BEGIN
        DELETE FROM accesskeys WHERE accesskey = paccesskey;
        rfound := FOUND;
        DELETE FROM keyuses WHERE accesskey = paccesskey;
        IF rfound THEN
            UPDATE meta SET number = number + 1 WHERE name = 'keysgeneration';
            PERFORM pg_notify('keys', '');
        END IF;
    END $$
    """,
)

_FOLDS = (
    """
    CREATE FUNCTION fold(pmost int, OUT rfreed bigint, OUT runnamed bigint) LANGUAGE plpgsql AS $$
    DECLARE
        horizon bigint; ids text[]; counts bigint[];
    BEGIN
        SELECT least(pg_snapshot_xmin(pg_current_snapshot())::text::bigint, min(readsfrom))
            INTO horizon FROM leases WHERE alive;
        WITH gone AS (
            DELETE FROM freed WHERE ctid = ANY (ARRAY(
                SELECT ctid FROM freed WHERE xid < horizon LIMIT pmost)) RETURNING blob
        ), counted AS (SELECT blob, count(*) AS n FROM gone GROUP BY blob ORDER BY blob)
            SELECT coalesce(array_agg(blob), '{}'), coalesce(array_agg(n), '{}'),
                coalesce(sum(n), 0) INTO ids, counts, rfreed FROM counted;
        -- Copies lock rows in the same order, so no deadlock is possible.
        PERFORM FROM blobs WHERE id = ANY (ids) ORDER BY id FOR UPDATE;
        UPDATE blobs SET refs = refs - each.n FROM unnest(ids, counts) AS each (blob, n)
            WHERE id = each.blob;
        SELECT count(*) INTO runnamed FROM blobs WHERE id = ANY (ids) AND refs <= 0;
    END $$
    """,
    """
    CREATE FUNCTION foldusage() RETURNS void LANGUAGE plpgsql AS $$
    DECLARE
        ids bigint[];
    BEGIN
        -- Skips buckets that are being removed, so that their rows are not inserted again.
        ids := ARRAY(SELECT id FROM buckets WHERE id IN (SELECT bucketid FROM usagedeltas)
            FOR KEY SHARE SKIP LOCKED);
        WITH gone AS (DELETE FROM usagedeltas WHERE bucketid = ANY (ids) RETURNING *)
        INSERT INTO usage SELECT bucketid, sum(objects), sum(bytes), sum(uploads), sum(uploadbytes)
            FROM gone GROUP BY bucketid ORDER BY bucketid
            ON CONFLICT (bucketid) DO UPDATE SET objects = usage.objects + excluded.objects,
                bytes = usage.bytes + excluded.bytes, uploads = usage.uploads + excluded.uploads,
                uploadbytes = usage.uploadbytes + excluded.uploadbytes;
        DELETE FROM usagedeltas WHERE bucketid NOT IN (SELECT id FROM buckets);
    END $$
    """,
)
"""
Fold rows of individual changes into totals. C{fold} folds the references that were freed before
every read in progress; C{foldusage} folds the changes of usage.
"""

FUNCTIONS = (
    *_DESCRIBE,
    *_REFERENCES,
    _JUDGE,
    _RETENTION,
    _DROP_NULL,
    _COVER,
    _STORE,
    _REMOVE,
    *_CHANGES,
    *_UPLOADS,
    *BUCKETS,
    *_KEYS,
    *LIST_FUNCTIONS,
    *EVENT_FUNCTIONS,
    *MOVE_FUNCTIONS,
    *_FOLDS,
)
"""Statements that create the functions, in order."""

# Whether a bucket has the key that wraps the key of an encrypted object. A caller looks for the
# member first, whose quotation marks no value has unescaped.
_HAS_KEY = f"""
    CREATE FUNCTION haskeyof(pbucketid bigint, pattributes text) RETURNS boolean
        LANGUAGE plpgsql AS $$
    BEGIN
        RETURN EXISTS (SELECT FROM bucketsettings WHERE bucketid = pbucketid
            AND name = '{BUCKET_KEY}' || (pattributes::json #>> '{{encryption,bucketKey}}'));
    END $$
"""


def _checkingKey(function: str, number: str) -> str:
    """
    Return the statement that replaces a function of a write by one that also refuses an encrypted
    object whose key is not wrapped by a key of its bucket.

    @param function: Its first C{IF} judges the bucket.
    @param number: The variable with the number of the bucket.
    """
    check = f"""ELSIF pattributes LIKE '%"bucketKey":%' AND NOT haskeyof({number}, pattributes) THEN
            rstatus := 13;
            RETURN;
        END IF;"""
    replaced = function.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1)
    return replaced.replace("END IF;", check, 1)


ENCRYPTION = (
    _HAS_KEY,
    _checkingKey(_STORE, "bucket.id"),
    _checkingKey(_CREATE_UPLOAD, "number"),
)
"""Statements of the second migration: writes of encrypted objects look for the bucket's key."""
