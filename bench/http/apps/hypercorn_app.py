"""
A text on Hypercorn, over HTTP/2 without TLS.

    python hypercorn_app.py PORT
"""

import sys

import uvloop
from baretext import app
from hypercorn.asyncio import serve
from hypercorn.config import Config

if __name__ == "__main__":
    config = Config()
    config.bind = [f"127.0.0.1:{sys.argv[1]}"]
    # By default it closes a connection after a thousand requests.
    config.keep_alive_max_requests = 1_000_000_000
    uvloop.run(serve(app, config))
