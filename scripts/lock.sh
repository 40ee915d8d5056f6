#!/usr/bin/env bash
# Refreshes the locked requirements: hashes only, never where a package was downloaded from.
set -euo pipefail
cd "$(dirname "$0")/../requirements"
tools=$(mktemp -d); trap 'rm -rf "$tools"' EXIT
python3 -m venv "$tools/venv"
"$tools/venv/bin/pip" install -q --disable-pip-version-check pip-tools
for name in sandbox runtime build dev fuzz api-fuzz node20 node24; do
  "$tools/venv/bin/pip-compile" -q --upgrade --generate-hashes --strip-extras --allow-unsafe --no-header \
    --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --output-file "$name.txt" "$name.in"
done

# From nothing, or npm keeps the versions it finds.
rm -f npm/package-lock.json
../scripts/npm.sh --prefix npm install --package-lock-only --omit-lockfile-registry-resolved --no-audit --no-fund
