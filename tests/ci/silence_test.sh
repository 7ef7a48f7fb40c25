#!/usr/bin/env bash
# ci/lib_ctest.sh: a test that stands still is aborted and named; one that computes as long is left alone.
set -euo pipefail
source_dir=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

printf '%s\n' 'add_test(stands sleep 1000)' \
  'add_test(computes timeout 12 sh -c "while :; do :; done")' \
  'set_tests_properties(computes PROPERTIES PASS_REGULAR_EXPRESSION "^$")' >"$work/CTestTestfile.cmake"
cat >"$work/run" <<'RUN'
set -euo pipefail
source "$1/ci/lib.sh"
source "$1/ci/lib_ctest.sh"
ctest_logged "$2/log" --test-dir "$2" --parallel 2
RUN
status=0
LOCKSTEP_SILENCE_S=6 bash "$work/run" "$source_dir" "$work" >"$work/said" 2>&1 || status=$?
for expected in 'nothing has computed for 6 s' '1 - stands (Subprocess aborted)' 'computes .* Passed'; do
  grep -qE "${expected//(/\\(}" "$work/said" || { cat "$work/said" >&2; echo "silence_test: not said: $expected" >&2; exit 1; }
done
((status != 0)) || { echo "silence_test: an aborted test passes" >&2; exit 1; }
echo "silence_test: ok"
