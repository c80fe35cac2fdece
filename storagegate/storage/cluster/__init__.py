"""The store over several machines: a catalog in PostgreSQL, shared blobs."""
