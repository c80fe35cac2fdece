"""Remote services: their discovery, load balancing, health checks and proxying."""
