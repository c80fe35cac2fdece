"""Calls as messages: sessions, the JSON and the binary framing."""
