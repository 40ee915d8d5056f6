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
# Where it is set, every process that a test starts compiles the checkout anew.
unset PYTHONDONTWRITEBYTECODE
export POINTSMAN_TEST_EVIDENCE=$run/evidence

failed=0
part() {
  "$pytest" tests "$@" || failed=$?
  # Interrupted, or what cannot even be collected: the other part has nothing to add.
  [ "$failed" -ne 2 ] || exit 2
}
part -m 'not alone' --ignore tests/docs -n "$processes" --dist loadfile --no-loadscope-reorder --basetemp "$run/beside"
part -m alone --basetemp "$run/alone"
exit "$failed"
