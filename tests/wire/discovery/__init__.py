"""Tests of discovery with real sockets and servers."""
