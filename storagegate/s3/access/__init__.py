"""Who may do what with a bucket and its objects; the domain below S3 and the gateway's Storage."""
