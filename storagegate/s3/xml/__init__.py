"""The XML documents of S3, in and out."""
