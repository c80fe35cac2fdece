"""The durable object store: a catalog (metadata, transactions) and blobs (immutable bytes)."""
