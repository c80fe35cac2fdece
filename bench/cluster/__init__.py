"""A store over several machines: nodes, catalogs, blobs and counts, beside the embedded store."""
