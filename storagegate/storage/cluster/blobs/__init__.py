"""Blobs on servers that all nodes can reach: RADOS, S3 and shared files."""
