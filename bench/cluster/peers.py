"""The servers that are compared: the embedded store first, then nodes of a cluster."""

from bench.cluster.recipe import EMBEDDED, NODE, catalog, node
from bench.s3.recipe import storagegate

_EMBEDDED, _NODE = storagegate(EMBEDDED), node(NODE)
ROWS = (_EMBEDDED, _NODE, node("standby", "standby"), node("nodes2", workers=2))
"""PostgreSQL alone, with a synchronous standby on the same disk, and behind two nodes."""

BLOBS = (_EMBEDDED, _NODE, node("s3", blobs="s3"))
"""Blobs in files, and in another daemon over S3."""

CATALOGS = (catalog("sqlite"), catalog("postgresql"))
