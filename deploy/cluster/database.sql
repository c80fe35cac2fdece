-- Run once, by Patroni, in the new PostgreSQL: the role and the database of the store. The nodes make the tables.
CREATE ROLE storagegate LOGIN PASSWORD '${storePassword}';
-- Whether standbys follow, and the timeline of one that does, is shown to members of this role only.
GRANT pg_monitor TO storagegate;
CREATE DATABASE storagegate OWNER storagegate TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C';
