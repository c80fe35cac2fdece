"""The catalog in PostgreSQL, for a store over several machines."""
