"""
Server functions that fold rows of individual changes into totals.

C{fold} folds the references that were freed before every read in progress; C{foldusage} folds the
changes of usage.
"""

FOLD_FUNCTIONS = (
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
"""Statements that create the functions, in order."""
