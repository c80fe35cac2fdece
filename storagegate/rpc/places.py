"""Where a gRPC server listens, looked at before grpc core is."""

import socket

from twisted.internet.error import CannotListenError


def checkPlace(host: str, port: int, isShared: bool) -> None:
    """
    See whether a port can be had.

    grpc core does not tell why it could not have one, and writes a line of its own to the process's
    error output.

    @param isShared: Whether others may listen there, too.
    @raise CannotListenError: If it cannot be had at any of the host's addresses.
    """
    reason: OSError | None = None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        found, reason = [], error
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if isShared:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                probe.bind(address)
            return
        except OSError as error:
            reason = error
    raise CannotListenError(host, port, reason)
