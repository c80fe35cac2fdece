"""The services that the daemon itself provides."""
