"""Blobs: immutable bytes by id, durable before anybody names them."""
