"""The store on one machine: a catalog in SQLite, blobs in files."""
