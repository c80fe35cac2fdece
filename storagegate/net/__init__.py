"""Transports, endpoints, the HTTP channel, and the requests that C{Resource} trees receive."""
