"""The transports of the gateway: a row each in the registry, and a folder with what it does."""
