"""
The second migration: users, groups, roles and policies, and the keys that belong to them.

C{issuedkeys} has all access keys. C{accesskeys} is a view of the keys of no user, because nodes of
an earlier release read it during an upgrade: they would give the other keys all rights of the
account.

The row of the kind C{account} in C{identities} has the revision of the account.
"""

_INCREMENT = """
            UPDATE meta SET number = number + 1 WHERE name = 'keysgeneration';
            PERFORM pg_notify('keys', '');
"""

# A node of an earlier release sends a key without the new columns.
_INSERT = """
        INSERT INTO issuedkeys SELECT * FROM jsonb_populate_record(NULL::issuedkeys,
            '{"username": "", "parent": "", "sessionpolicy": ""}'::jsonb || pkey::jsonb)
"""

IDENTITIES = (
    "ALTER TABLE accesskeys RENAME TO issuedkeys",
    """
    ALTER TABLE issuedkeys
        ADD COLUMN username text NOT NULL DEFAULT '',
        ADD COLUMN parent text NOT NULL DEFAULT '',
        ADD COLUMN sessionpolicy text NOT NULL DEFAULT ''
    """,
    """
    CREATE VIEW accesskeys AS
        SELECT accesskey, secretkey, account, policy, bucketpattern, prefixpattern, email,
            createdms, role, expiresms, disabled, note
        FROM issuedkeys WHERE username = '' AND parent = ''
    """,
    """
    CREATE TABLE identities (
        account text COLLATE "C" NOT NULL,
        kind text COLLATE "C" NOT NULL,
        name text COLLATE "C" NOT NULL,
        revision bigint NOT NULL,
        document bytea NOT NULL,
        PRIMARY KEY (account, kind, name)
    )
    """,
    f"""
    CREATE OR REPLACE FUNCTION addaccesskey(pkey json, OUT rstatus int) LANGUAGE plpgsql AS $$
    BEGIN
        {_INSERT}
            ON CONFLICT (accesskey) DO NOTHING;
        rstatus := CASE WHEN FOUND THEN 0 ELSE 12 END;
        IF FOUND THEN
            {_INCREMENT}
        END IF;
    END $$
    """,
    f"""
    CREATE OR REPLACE FUNCTION changeaccesskey(pkey json, OUT rfound boolean)
    LANGUAGE plpgsql AS $$
    BEGIN
        DELETE FROM issuedkeys WHERE accesskey = pkey->>'accesskey';
        rfound := FOUND;
        IF FOUND THEN
            {_INSERT};
            {_INCREMENT}
        END IF;
    END $$
    """,
    f"""
    CREATE OR REPLACE FUNCTION removeaccesskey(paccesskey text, OUT rfound boolean)
    LANGUAGE plpgsql AS $$
    BEGIN
        DELETE FROM issuedkeys WHERE accesskey = paccesskey;
        rfound := FOUND;
        DELETE FROM keyuses WHERE accesskey = paccesskey;
        IF rfound THEN
            {_INCREMENT}
        END IF;
    END $$
    """,
    # The lock of the generation makes changes of all nodes wait for each other.
    f"""
    CREATE FUNCTION putidentities(paccount text, prevision bigint, pkinds text[], pnames text[],
        pdocuments bytea[], padded json, pchanged json, premoved text[],
        OUT rstatus int, OUT rrevision bigint)
    LANGUAGE plpgsql AS $$
    DECLARE
        pkey json;
    BEGIN
        PERFORM FROM meta WHERE name = 'keysgeneration' FOR UPDATE;
        SELECT revision INTO rrevision FROM identities
            WHERE account = paccount AND kind = 'account' AND name = '';
        rrevision := coalesce(rrevision, 0);
        IF rrevision <> prevision OR EXISTS (
            SELECT FROM json_array_elements(pchanged) AS c WHERE NOT EXISTS (
                SELECT FROM issuedkeys WHERE accesskey = c->>'accesskey')) THEN
            rstatus := 15;
            RETURN;
        END IF;
        IF EXISTS (SELECT FROM json_array_elements(padded) AS a
            JOIN issuedkeys ON accesskey = a->>'accesskey') THEN
            rstatus := 12;
            RETURN;
        END IF;
        rstatus := 0;
        {_INCREMENT}
        SELECT number INTO rrevision FROM meta WHERE name = 'keysgeneration';
        DELETE FROM issuedkeys WHERE accesskey = ANY (premoved);
        DELETE FROM keyuses WHERE accesskey = ANY (premoved);
        DELETE FROM issuedkeys WHERE accesskey IN (
            SELECT c->>'accesskey' FROM json_array_elements(pchanged) AS c);
        FOR pkey IN SELECT json_array_elements(pchanged)
            UNION ALL SELECT json_array_elements(padded) LOOP
            {_INSERT};
        END LOOP;
        DELETE FROM identities AS i USING unnest(pkinds, pnames, pdocuments) AS d (k, n, document)
            WHERE i.account = paccount AND i.kind = d.k AND i.name = d.n;
        INSERT INTO identities SELECT paccount, d.k, d.n, rrevision, d.document
            FROM unnest(pkinds, pnames, pdocuments) AS d (k, n, document)
            WHERE d.document IS NOT NULL;
        INSERT INTO identities VALUES (paccount, 'account', '', rrevision, '{{}}')
            ON CONFLICT (account, kind, name) DO UPDATE SET revision = excluded.revision;
    END $$
    """,
)
"""Creates and changes the tables and functions."""
