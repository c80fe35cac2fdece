"""TCP in AsyncAPI."""

from storagegate.gateway.asyncapi import Channel


class TCPChannel(Channel):
    """The channel of TCP."""

    description = "Framed JSON, and lines of the messages of WebSocket"
