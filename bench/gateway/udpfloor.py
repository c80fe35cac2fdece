"""
The floor of the gateway's UDP: a loop that sends each datagram back, on a socket alone.

    python -m bench.gateway.udpfloor PORT
"""

import socket
import sys


def main(port: int) -> None:
    """Serve until the end."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", port))
        while True:
            datagram, address = server.recvfrom(65536)
            server.sendto(datagram, address)


if __name__ == "__main__":
    main(int(sys.argv[1]))
