"""
The functions of the schema with which listings walk along keys.

C{listed} advances in two ways, each in growing runs: from group to group with one index probe each,
and along keys, reading whole rows. Its cost is proportional to the result, however many keys a
group has. A probe has no upper bound: before PostgreSQL returns the first key, it compares all keys
of the index page, some hundreds, with each bound, which takes half the time of a probe.
"""

LIST_FUNCTIONS = (
    """
    CREATE FUNCTION groupend(k bytea, delimiter bytea, behind int) RETURNS bytea
        LANGUAGE sql IMMUTABLE AS $$
        SELECT CASE WHEN position(delimiter IN substr(k, behind)) > 0 THEN
            substr(k, 1, behind - 2 + length(delimiter) + position(delimiter IN substr(k, behind)))
        END $$
    """,
    r"""
    CREATE FUNCTION listed(bucket bigint, start bytea, beyond bytea, delimiter bytea, behind int,
        most int, typed boolean) RETURNS TABLE (key bytea, part bytea, size bigint, etag text,
        modifiedms bigint, account text, storageclass text, checksumalgorithm text,
        checksumkind text, attributes text) LANGUAGE plpgsql STABLE ROWS 1000 AS $$
    DECLARE
        at bytea := start; n int := 0; grouping boolean := true; run int := 1; seen int; want int;
        k bytea; last int := behind - 2 + length(delimiter);
    BEGIN
        WHILE n < most LOOP
            seen := 0;
            want := least(run, most - n);
            IF grouping THEN
                key := NULL; size := NULL; etag := NULL; modifiedms := NULL; account := NULL;
                storageclass := NULL; checksumalgorithm := NULL; checksumkind := NULL;
                attributes := NULL;
                FOR k, part IN
                    WITH RECURSIVE walk (n, k, part) AS (
                        SELECT 1, f.key, CASE WHEN f.place > 0
                            THEN substr(f.key, 1, last + f.place) END
                        FROM (SELECT t.key, position(delimiter IN substr(t.key, behind)) AS place
                            FROM objects AS t WHERE t.bucketid = bucket
                            AND t.key >= at ORDER BY t.key LIMIT 1) AS f
                        UNION ALL
                        SELECT walk.n + 1, f.key, CASE WHEN f.place > 0
                            THEN substr(f.key, 1, last + f.place) END
                        FROM walk, LATERAL (SELECT t.key,
                                position(delimiter IN substr(t.key, behind)) AS place
                            FROM objects AS t WHERE t.bucketid = bucket
                            AND t.key >= walk.part || '\xff'::bytea ORDER BY t.key LIMIT 1) AS f
                        WHERE walk.part IS NOT NULL AND walk.n < want AND walk.k < beyond)
                    SELECT walk.k, walk.part FROM walk
                LOOP
                    EXIT WHEN k >= beyond;
                    seen := seen + 1;
                    IF part IS NULL THEN
                        at := k;
                        grouping := false;
                        EXIT;
                    END IF;
                    at := part || '\xff';
                    n := n + 1;
                    RETURN NEXT;
                END LOOP;
                EXIT WHEN grouping AND seen < want;
            ELSE
                part := NULL;
                FOR key, size, etag, modifiedms, account, storageclass, checksumalgorithm,
                    checksumkind, attributes IN
                    SELECT t.key, t.size, t.etag, t.modifiedms, t.account, t.storageclass,
                        t.checksumalgorithm, t.checksumkind,
                        CASE WHEN typed THEN t.attributes END
                    FROM objects AS t WHERE t.bucketid = bucket AND t.key >= at AND t.key < beyond
                    ORDER BY t.key LIMIT want
                LOOP
                    IF position(delimiter IN substr(key, behind)) > 0 THEN
                        at := key;
                        grouping := true;
                        EXIT;
                    END IF;
                    n := n + 1;
                    seen := seen + 1;
                    at := key || '\x00';
                    RETURN NEXT;
                END LOOP;
                EXIT WHEN NOT grouping AND seen < want;
            END IF;
            run := least(run * 4, 1024);
        END LOOP;
    END $$
    """,
    # The keys and groups of objects and versions, or of uploads, for rarer listings.
    r"""
    CREATE FUNCTION steps(bucket bigint, start bytea, beyond bytea, delimiter bytea, behind int,
        most int, ofuploads boolean) RETURNS TABLE (n int, key bytea, part bytea)
        LANGUAGE plpgsql STABLE ROWS 1000 AS $$
    DECLARE
        at bytea := start; found bytea; other bytea;
    BEGIN
        FOR step IN 1 .. most LOOP
            n := step;
            found := NULL;
            IF ofuploads THEN
                SELECT t.key INTO found FROM uploads AS t WHERE t.bucketid = bucket AND t.key >= at
                    AND t.key < beyond ORDER BY t.key LIMIT 1;
            ELSE
                SELECT t.key INTO found FROM objects AS t WHERE t.bucketid = bucket AND t.key >= at
                    AND t.key < beyond ORDER BY t.key LIMIT 1;
                SELECT t.key INTO other FROM versions AS t WHERE t.bucketid = bucket
                    AND t.key >= at AND t.key < coalesce(found, beyond) ORDER BY t.key LIMIT 1;
                found := coalesce(other, found);
            END IF;
            EXIT WHEN found IS NULL;
            key := found;
            part := groupend(key, delimiter, behind);
            at := CASE WHEN part IS NULL THEN key || '\x00'::bytea ELSE part || '\xff'::bytea END;
            RETURN NEXT;
        END LOOP;
    END $$
    """,
)
"""Statements that create the functions, in order."""
