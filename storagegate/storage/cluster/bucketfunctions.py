"""The functions of the schema that create, change and remove buckets."""

BUCKETS = (
    """
    CREATE FUNCTION createbucket(pname text, paccount text, pcreatedms bigint, pregion text,
        pownership text, pversioning text, plockenabled boolean, pgeneration bigint,
        OUT rexisting text) LANGUAGE plpgsql AS $$
    DECLARE
        place int;
    BEGIN
        IF (SELECT number FROM meta WHERE name = 'shard') = 0 THEN
            -- A row may exist already, for this bucket or for a deleted one of the same name.
            INSERT INTO directory VALUES (pname, 0) ON CONFLICT (bucket) DO NOTHING;
            SELECT shard INTO place FROM directory WHERE bucket = pname;
            IF place IS DISTINCT FROM 0 THEN
                RAISE EXCEPTION 'the bucket belongs to shard %, not here', place
                    USING ERRCODE = '55000';
            END IF;
        END IF;
        INSERT INTO buckets (name, account, createdms, region, ownership, versioning, lockenabled,
            generation, described) VALUES (pname, paccount, pcreatedms, pregion, pownership,
            pversioning, plockenabled, pgeneration, '') ON CONFLICT (name) DO NOTHING;
        IF NOT FOUND THEN
            SELECT described INTO rexisting FROM buckets WHERE name = pname;
        ELSE
            PERFORM pg_notify('buckets', pname);
        END IF;
    END $$
    """,
    # A name keeps an existing row, because its bucket may exist there.
    """
    CREATE FUNCTION placebucket(pname text, OUT rshard int) LANGUAGE plpgsql AS $$
    DECLARE
        taking int[] := ARRAY(SELECT number FROM shards WHERE takesbuckets ORDER BY number);
    BEGIN
        SELECT shard INTO rshard FROM directory WHERE bucket = pname;
        IF NOT FOUND THEN
            IF cardinality(taking) = 0 THEN
                RAISE EXCEPTION 'no shard takes new buckets' USING ERRCODE = '55000';
            END IF;
            INSERT INTO directory VALUES
                (pname, taking[1 + (hashtext(pname) & 2147483647) % cardinality(taking)])
                ON CONFLICT (bucket) DO NOTHING;
            SELECT shard INTO rshard FROM directory WHERE bucket = pname;
        END IF;
    END $$
    """,
    """
    CREATE FUNCTION deletebucket(pname text, OUT rstatus int) LANGUAGE plpgsql AS $$
    DECLARE
        number bigint;
    BEGIN
        SELECT id INTO number FROM buckets WHERE name = pname;
        IF NOT FOUND THEN
            rstatus := 1;
        ELSIF EXISTS (SELECT FROM objects WHERE bucketid = number)
            OR EXISTS (SELECT FROM versions WHERE bucketid = number)
            OR EXISTS (SELECT FROM uploads WHERE bucketid = number) THEN
            rstatus := 9;
        ELSE
            rstatus := 0;
            PERFORM dropbucket(number);
        END IF;
    END $$
    """,
    """
    CREATE FUNCTION setversioning(pname text, pversioning text, OUT rstatus int)
        LANGUAGE plpgsql AS $$
    DECLARE
        bucket record;
    BEGIN
        SELECT id, lockenabled INTO bucket FROM buckets WHERE name = pname;
        IF NOT FOUND THEN
            rstatus := 1;
        ELSIF bucket.lockenabled AND pversioning <> 'Enabled' THEN
            rstatus := 10;
        ELSE
            rstatus := 0;
            UPDATE buckets SET versioning = pversioning WHERE id = bucket.id;
            PERFORM pg_notify('buckets', pname);
        END IF;
    END $$
    """,
    # A write number never repeats, even for a later bucket of the same name.
    """
    CREATE FUNCTION putsettings(pname text, pnames text[], pdocuments bytea[], OUT rstatus int,
        OUT rgeneration bigint) LANGUAGE plpgsql AS $$
    DECLARE
        number bigint;
    BEGIN
        SELECT id INTO number FROM buckets WHERE name = pname;
        IF NOT FOUND THEN
            rstatus := 1;
            RETURN;
        END IF;
        rstatus := 0;
        DELETE FROM bucketsettings WHERE bucketid = number AND name = ANY (pnames);
        INSERT INTO bucketsettings
            SELECT number, each.name, each.document
            FROM unnest(pnames, pdocuments) AS each (name, document)
            WHERE each.document IS NOT NULL;
        rgeneration := nextval('writes');
        UPDATE buckets SET generation = rgeneration WHERE id = number;
        PERFORM pg_notify('buckets', pname);
    END $$
    """,
    """
    CREATE FUNCTION setobjectlock(pname text, pdocument bytea, OUT rstatus int)
        LANGUAGE plpgsql AS $$
    DECLARE
        bucket record;
    BEGIN
        SELECT id, versioning INTO bucket FROM buckets WHERE name = pname;
        IF NOT FOUND THEN
            rstatus := 1;
        ELSIF bucket.versioning <> 'Enabled' THEN
            rstatus := 11;
        ELSE
            rstatus := 0;
            PERFORM putsettings(pname, ARRAY['objectLock'], ARRAY[pdocument]);
            UPDATE buckets SET lockenabled = true WHERE id = bucket.id;
        END IF;
    END $$
    """,
)
