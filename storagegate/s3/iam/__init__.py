"""The IAM API: Amazon's query protocol for the identities of an account."""
