"""
A text on Granian, over HTTP/2 without TLS.

    python granian_app.py PORT
"""

import sys

from granian import Granian
from granian.constants import HTTPModes, Interfaces, Loops

if __name__ == "__main__":
    Granian(
        "baretext:app",
        address="127.0.0.1",
        port=int(sys.argv[1]),
        interface=Interfaces.ASGINL,
        http=HTTPModes.http2,
        loop=Loops.uvloop,
        workers=1,
        log_access=False,
    ).serve()
