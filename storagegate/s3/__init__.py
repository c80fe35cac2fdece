"""The S3 server: rules of the protocol in pure modules, the domain, and one resource."""
