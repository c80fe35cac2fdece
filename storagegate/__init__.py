"""storagegate: a durable S3 server, and the trunk of a service gateway, on Twisted."""

__version__ = "0.1.0"
