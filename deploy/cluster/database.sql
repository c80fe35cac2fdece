-- Patroni runs this once in the new PostgreSQL: the role and the database of the store. The nodes create the tables.
CREATE ROLE storagegate LOGIN PASSWORD '${storePassword}';
-- Only members of this role can see whether standbys follow, and their timelines.
GRANT pg_monitor TO storagegate;
CREATE DATABASE storagegate OWNER storagegate TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C';
