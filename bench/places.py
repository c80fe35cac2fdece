"""Where the bench finds and puts things."""

import os
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
BLAST_SOURCE = CHECKOUT / "bench" / "blast.c"
ECHOLOAD_SOURCE = CHECKOUT / "bench" / "echoload.c"
COLLECTOR = CHECKOUT / "bench" / "collector.py"
BULK_FILL = CHECKOUT / "bench" / "bulkfill.py"
VERSION_FILL = CHECKOUT / "bench" / "versionfill.py"
CHECKPOINTS = CHECKOUT / "bench" / "checkpoints.py"
IDLE_CONNECTIONS = CHECKOUT / "bench" / "idleconnections.py"
KEY_FILL = CHECKOUT / "bench" / "keyfill.py"
NGINX_TEMPLATE = CHECKOUT / "bench" / "nginx.conf"
GATEWAY_PEERS = CHECKOUT / "bench" / "gatewaypeers"
INVOKER_CLIENT = CHECKOUT / "bench" / "invoking.py"
GRPC_CLIENT = CHECKOUT / "bench" / "grpcclient.py"
GRPC_PEERS = CHECKOUT / "bench" / "grpcpeers"
HTTP_PEERS = CHECKOUT / "bench" / "httppeers"
FLOOR = CHECKOUT / "bench" / "floor"
PROFILER = CHECKOUT / "bench" / "profiler"
WRK_SCRIPT = CHECKOUT / "bench" / "wrk.lua"
README = CHECKOUT / "bench" / "README.rst"


def peersFolder() -> Path:
    """Find the folder that C{setup_peers.sh} fills: C{$PEERS}, or C{build/peers}."""
    # Servers are started in folders of their own.
    return Path(os.environ.get("PEERS") or CHECKOUT / "build" / "peers").absolute()
