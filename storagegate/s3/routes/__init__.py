"""The S3 operations over HTTP: each reads its request, asks the domain, and writes its answer."""
