"""The transports of the gateway: each has a row in the registry, and a folder with its code."""
