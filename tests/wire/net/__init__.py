"""The trunk with real processes and sockets."""
