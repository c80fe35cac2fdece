"""The embedded catalog: SQLite in WAL mode, one writer thread that commits in groups."""
