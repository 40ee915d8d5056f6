#!/usr/bin/env bash
# Writes src/pointsman/rpc/gen from proto/. With --check: fails when what is committed differs.
set -euo pipefail
cd "$(dirname "$0")/.."
out=src
[ "${1:-}" = --check ] && { out=$(mktemp -d); trap 'rm -rf "$out"' EXIT; }
PATH=$PWD/.venv/bin:$PATH .venv/bin/python -m grpc_tools.protoc -Ipointsman/rpc/gen=proto \
  --python_out="$out" --mypy_out="quiet:$out" --grpc_python_out="$out" --mypy_grpc_out="quiet:$out" proto/*.proto
if [ "$out" != src ]; then
  for made in "$out"/pointsman/rpc/gen/*; do
    cmp -s "$made" "src/pointsman/rpc/gen/${made##*/}" ||
      { echo "${made##*/} does not match proto/; next: make proto"; exit 1; }
  done
fi
