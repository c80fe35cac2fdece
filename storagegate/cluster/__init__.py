"""A node of a store over several machines: its lease, and the work that nodes share."""
