"""A node of a store over several machines: its lease, and the jobs that the nodes share."""
