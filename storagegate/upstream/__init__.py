"""Services elsewhere: their discovery, balancing, health checks and proxying."""
