"""WebSocket on the wire: handshakes, and connections with their limits."""
