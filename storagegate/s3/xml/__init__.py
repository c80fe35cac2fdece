"""S3's XML documents: parsers and writers."""
