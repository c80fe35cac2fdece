"""Neutral ground: no transport, no protocol, no storage is known here."""
