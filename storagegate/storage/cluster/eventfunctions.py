"""
The tables and functions of the change journal, for the watchers of all nodes.

A mutation of a C{watched} bucket adds a row to C{events} in its own transaction and notifies.
C{watches} holds the watched buckets by node lease; C{followers} holds the snapshot up to which each
node has read. Events that all nodes have read are removed.

B{The order.} A node reads the rows that its current snapshot shows and the previous one did not, so
that no event is repeated or missed, however late a transaction commits. Within one read, events are
ordered by id, and ids are drawn under the lock of the key.

B{The beginning.} A node starts watching while it holds the exclusive lock of the bucket. Later
commits see C{watched} and are in no earlier snapshot.
"""

EVENT_TABLES = (
    """
    CREATE TABLE events (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
        bucket text COLLATE "C" NOT NULL,
        key bytea,
        size bigint,
        etag text,
        modifiedms bigint,
        account text,
        attributes text,
        numbered boolean,
        sequence bigint
    )
    """,
    "CREATE INDEX eventsbyxid ON events (xid)",
    """
    CREATE TABLE watches (
        bucketid bigint NOT NULL,
        lease bigint NOT NULL,
        PRIMARY KEY (bucketid, lease)
    )
    """,
    "CREATE TABLE followers (lease bigint PRIMARY KEY, position pg_snapshot NOT NULL)",
    # Events of transactions below this number may have been removed before a node read them.
    "INSERT INTO meta (name) VALUES ('eventshorizon')",
)

_JOURNAL = """
    CREATE FUNCTION journal(pbucket text, pkey bytea, psize bigint, petag text,
        pmodifiedms bigint, paccount text, pattributes text, pnumbered boolean, psequence bigint)
        RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO events (bucket, key, size, etag, modifiedms, account, attributes, numbered,
            sequence) VALUES (pbucket, pkey, psize, petag, pmodifiedms, paccount, pattributes,
            pnumbered, psequence);
        PERFORM pg_notify('events', '');
    END $$
"""

# C{watched} is checked and set under the row lock of the bucket, so each statement sees earlier
# commits.
_WATCHES = (
    """
    CREATE FUNCTION startwatch(pname text, please bigint, OUT rstatus int, OUT rposition text)
        LANGUAGE plpgsql AS $$
    DECLARE
        number bigint;
    BEGIN
        SELECT id INTO number FROM buckets WHERE name = pname FOR UPDATE;
        IF NOT FOUND THEN
            rstatus := 1;
            RETURN;
        END IF;
        rstatus := 0;
        INSERT INTO watches VALUES (number, please) ON CONFLICT DO NOTHING;
        UPDATE buckets SET watched = true WHERE id = number AND NOT watched;
        rposition := pg_current_snapshot();
        INSERT INTO followers VALUES (please, rposition::pg_snapshot) ON CONFLICT DO NOTHING;
    END $$
    """,
    """
    CREATE FUNCTION dropwatch(pbucketid bigint, please bigint) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM FROM buckets WHERE id = pbucketid FOR UPDATE;
        DELETE FROM watches WHERE bucketid = pbucketid AND lease = please;
        UPDATE buckets SET watched = false WHERE id = pbucketid
            AND NOT EXISTS (SELECT FROM watches WHERE bucketid = pbucketid);
    END $$
    """,
    """
    CREATE FUNCTION stopwatch(pname text, please bigint) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM dropwatch(id, please) FROM buckets WHERE name = pname;
        DELETE FROM followers WHERE lease = please
            AND NOT EXISTS (SELECT FROM watches WHERE lease = please);
    END $$
    """,
    # Drops the watches of an ended lease, unless its node has taken them over.
    """
    CREATE FUNCTION dropwatches(please bigint) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        DELETE FROM followers WHERE lease = please;
        PERFORM dropwatch(bucketid, please)
            FROM (SELECT bucketid FROM watches WHERE lease = please ORDER BY bucketid) AS each;
    END $$
    """,
    """
    CREATE FUNCTION movewatches(pfrom bigint, pto bigint, OUT rmoved boolean)
        LANGUAGE plpgsql AS $$
    BEGIN
        UPDATE followers SET lease = pto WHERE lease = pfrom;
        rmoved := FOUND;
        UPDATE watches SET lease = pto WHERE lease = pfrom;
    END $$
    """,
)

_TAKEN_OVER = "10 s"
"""How long a node may take over its watches after its lease ends."""

_TRIM = f"""
    CREATE FUNCTION trimevents(pmost bigint, OUT rtrimmed bigint) LANGUAGE plpgsql AS $$
    DECLARE
        unread xid8; latest bigint; lost xid8;
    BEGIN
        PERFORM dropwatches(lease) FROM followers WHERE lease IN (SELECT id FROM leases
            WHERE NOT alive AND expires < clock_timestamp() - interval '{_TAKEN_OVER}');
        SELECT pg_snapshot_xmin(position) INTO unread FROM followers ORDER BY 1 LIMIT 1;
        DELETE FROM events
            WHERE xid < coalesce(unread, pg_snapshot_xmin(pg_current_snapshot()));
        GET DIAGNOSTICS rtrimmed = ROW_COUNT;
        SELECT max(id) INTO latest FROM events;
        IF (SELECT min(id) FROM events) <= latest - pmost THEN
            WITH gone AS (DELETE FROM events WHERE id <= latest - pmost RETURNING xid)
                SELECT xid INTO lost FROM gone ORDER BY xid DESC LIMIT 1;
            UPDATE meta SET number = greatest(number, lost::text::bigint + 1)
                WHERE name = 'eventshorizon';
        END IF;
    END $$
"""

EVENT_FUNCTIONS = (_JOURNAL, *_WATCHES, _TRIM)
"""Statements that create the functions, in order."""

# The rows belong to the snapshot in the first column, unless $2 gives another. The timeline is of
# the server that answers, whose promotion may not have been noticed yet.
_READ = """
    SELECT upto.position, (SELECT number FROM meta WHERE name = 'eventshorizon'),
        EXISTS (SELECT FROM events),
        ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int, e.*
    FROM (SELECT coalesce($2::text, pg_current_snapshot()::text) AS position) AS upto
    LEFT JOIN LATERAL (
        SELECT id, bucket, key, size, etag, modifiedms, account, attributes, numbered, sequence
        FROM events
        WHERE xid >= pg_snapshot_xmin($1::text::pg_snapshot)
            AND NOT pg_visible_in_snapshot(xid, $1::text::pg_snapshot)
            AND pg_visible_in_snapshot(xid, upto.position::pg_snapshot)
            AND id > $3::bigint AND bucket = ANY ($4::text[])
        ORDER BY id LIMIT $5::int
    ) AS e ON true ORDER BY e.id
"""

EVENTS = {
    b"events": _READ,
    b"saveposition": """
        UPDATE followers SET position = $2::text::pg_snapshot WHERE lease = $1::bigint
    """,
    b"listenevents": "LISTEN events",
    b"unlistenevents": "UNLISTEN events",
}
"""The statements of the connection for listings and notifications."""
