"""S3: objects, lists and deletes, beside C{rclone serve s3}, nginx and the floor."""
