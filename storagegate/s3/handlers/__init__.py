"""One function for each S3 operation."""
