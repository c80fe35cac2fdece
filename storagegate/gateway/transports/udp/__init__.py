"""The gateway over UDP datagrams."""
