#!/bin/sh
# Holds the transcoder to Python's protobuf on random schemas and bytes: python_agreement.sh [<cases> [<seed>]]
#
# Makes its own Python environment under target/, so nothing is installed anywhere else. Without Python, or where the
# protobuf package cannot be had, it says so and ends with 0: the same cases run against prost in
# core/message/tests/integration/transcode_agreement.rs.
set -eu
cd "$(dirname "$0")/../.."
cases=${1:-4000}
seed=${2:-1}
target=${CARGO_TARGET_DIR:-target}
environment=$target/python-protobuf

skip() {
    echo "skipped: $1"
    exit 0
}

command -v python3 >/dev/null || skip "there is no python3"
if ! "$environment/bin/python" -c 'import google.protobuf' 2>/dev/null; then
    python3 -m venv "$environment" || skip "python3 has no venv"
    "$environment/bin/pip" install --quiet --disable-pip-version-check 'protobuf>=5,<8' || skip "no protobuf package"
fi
cargo build --quiet --release -p trunkline-message --example transcode_filter
exec "$environment/bin/python" tests/codec/python_agreement.py \
    "$target/release/examples/transcode_filter" "$cases" "$seed"
