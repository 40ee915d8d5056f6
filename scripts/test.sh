#!/usr/bin/env bash
# All tests, in two parts: side by side those that may, then alone those that measure, and the search for canaries in
# what both left. tests/docs is not here: `make check`, which comes first, runs it.
# usage: test.sh PYTEST PROCESSES
set -uo pipefail
cd "$(dirname "$0")/.."
pytest=$1 processes=$2
# Short: sockets lie below it, and the path of one is 107 bytes at most.
run=$(mktemp -d "${TMPDIR:-/tmp}/pmt-XXXXXX") || exit 1
trap 'rm -rf "$run"' EXIT
mkdir "$run/evidence" || exit 1
export POINTSMAN_TEST_EVIDENCE=$run/evidence

failed=0
"$pytest" tests -m 'not alone' --ignore tests/docs -n "$processes" --dist loadfile --no-loadscope-reorder --basetemp "$run/beside" || failed=$?
"$pytest" tests -m alone --basetemp "$run/alone" || failed=$?
exit "$failed"
