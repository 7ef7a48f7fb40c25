#!/usr/bin/env bash
# The driver must find a planted fault, save the input, name it, and fail again on its replay; and do the same twice.
set -euo pipefail
program=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/corpus"
printf 'list: [1, 2, 3]\nother: 4\n' >"$work/corpus/seed"

fail() { echo "driver_test: $*" >&2; exit 1; }

for round in 1 2; do
  mkdir "$work/$round"
  if "$program" planted "$work/corpus" --seconds 30 --seed 7 --artifacts "$work/$round" 2>"$work/$round.log"; then
    fail "the planted fault was not found"
  fi
  grep -q "input saved to $work/$round/crash-" "$work/$round.log" || fail "the input is not named: $(cat "$work/$round.log")"
done
first=("$work"/1/crash-*) second=("$work"/2/crash-*)
cmp "${first[0]}" "${second[0]}" || fail "the same seed found another input"
if "$program" planted --replay "${first[0]}" 2>/dev/null; then fail "the replayed input does not fail"; fi
"$program" planted --replay "$work/corpus/seed" >/dev/null || fail "a sound input fails"
"$program" planted "$work/corpus" --executions 1 >/dev/null || fail "a sound corpus fails"
if "$program" planted "$work/nowhere" 2>/dev/null; then fail "a missing corpus is accepted"; fi
echo "driver_test: found, saved and replayed"
