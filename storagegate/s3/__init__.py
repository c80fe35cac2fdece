"""The S3 server: protocol rules in pure modules, the domain, and one resource."""
