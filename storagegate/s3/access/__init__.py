"""Access decisions on a bucket and its objects; the domain below S3 and the gateway's Storage."""
