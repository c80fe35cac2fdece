"""The services that the daemon serves by itself."""
