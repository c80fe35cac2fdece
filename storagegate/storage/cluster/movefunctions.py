"""
Tables and functions for moving buckets to or from another cluster.

C{bucketmoves} has the mark of each move, with the number of the bucket in this cluster. An
C{isreserved} name has no bucket, and none can be created with it: the bucket has not arrived yet,
or is about to be served elsewhere. Look-ups do not find rows under its number.

C{arriving} has the rows of buckets that are not served yet. C{arrivedblobs} has a row for each
copied blob, with its id in the source cluster. While the row exists, it counts as a reference to
the blob.
"""

MOVE_TABLES = (
    """
    CREATE TABLE bucketmoves (
        name text COLLATE "C" PRIMARY KEY,
        bucketid bigint NOT NULL,
        isreserved boolean NOT NULL,
        mark bytea NOT NULL
    )
    """,
    """
    CREATE TABLE arriving (
        id bigint PRIMARY KEY,
        name text COLLATE "C" NOT NULL UNIQUE,
        account text NOT NULL,
        createdms bigint NOT NULL,
        region text NOT NULL,
        ownership text NOT NULL,
        versioning text NOT NULL,
        lockenabled boolean NOT NULL,
        generation bigint NOT NULL
    )
    """,
    """
    CREATE TABLE arrivedblobs (
        bucketid bigint NOT NULL,
        source text COLLATE "C" NOT NULL,
        id text COLLATE "C" NOT NULL UNIQUE,
        PRIMARY KEY (bucketid, source)
    )
    """,
)

MOVE_FUNCTIONS = (
    """
    CREATE FUNCTION refusereserved() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF EXISTS (SELECT FROM bucketmoves WHERE name = NEW.name AND isreserved) THEN
            RAISE EXCEPTION 'the bucket is being moved' USING ERRCODE = '55000';
        END IF;
        RETURN NEW;
    END $$
    """,
    """
    CREATE TRIGGER refusereserved BEFORE INSERT ON buckets
        FOR EACH ROW EXECUTE FUNCTION refusereserved()
    """,
    # The rows of objects and uploads stay, but look-ups no longer find them.
    """
    CREATE FUNCTION dropbucket(pnumber bigint, OUT rname text) LANGUAGE plpgsql AS $$
    DECLARE
        iswatched boolean;
    BEGIN
        DELETE FROM buckets WHERE id = pnumber RETURNING name, watched INTO rname, iswatched;
        IF NOT FOUND THEN
            RETURN;
        END IF;
        DELETE FROM directory
            WHERE bucket = rname AND NOT EXISTS (SELECT FROM shards AS s WHERE s.number > 0);
        DELETE FROM bucketsettings WHERE bucketid = pnumber;
        DELETE FROM usage WHERE bucketid = pnumber;
        IF iswatched THEN
            DELETE FROM watches WHERE bucketid = pnumber;
            PERFORM journal(rname, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
        END IF;
        PERFORM pg_notify('buckets', rname);
    END $$
    """,
)
