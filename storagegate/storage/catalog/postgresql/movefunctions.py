"""
Tables and functions of buckets that are moved to another cluster, or from there.

C{bucketmoves} has the mark of each move, with the number of its bucket here. A name that is
C{isreserved} is no bucket's, and none can be made of it: the bucket is not there yet, or is about
to serve elsewhere. Rows under its number are found by no look-up.

C{arriving} has the rows of buckets that do not serve yet. C{arrivedblobs} has a row for each blob
that was copied, with its id in the cluster that it came from. As long as it is there it is one of
the references of its blob.
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
    # The rows of objects and uploads stay, and are found by no look-up any more.
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
