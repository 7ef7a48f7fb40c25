# Tests for ci/test and ci/nightly; sourced after lib.sh.
# shellcheck shell=bash

# Closing lines, and whether a part has failed.
summary=()
failed=0

# run_tests TITLE CTEST-ARGUMENTS...: keeps ctest's verdict for the end; a failure does not stop the other parts.
run_tests() {
  local title=$1 log=build/ctest.log
  shift
  step "test $title" ctest_logged "$log" "$@" || failed=1
  summary+=("$title: $(grep -E '^[0-9]+% tests passed' "$log" || tail -n 1 "$log")")
  keep_skipped "$@"
  keep_failures "$log"
}

ctest_logged() {
  local log=$1 tests watch status=0
  shift
  (ctest --no-tests=error --output-on-failure "$@" 2>&1 </dev/null | tee "$log") &
  tests=$!
  end_where_nothing_computes "$tests" &
  watch=$!
  wait "$tests" || status=$?
  kill "$watch" 2>/dev/null || true
  wait "$watch" 2>/dev/null || true
  return "$status"
}

# end_where_nothing_computes PID: a busy machine makes tests slow, and a slow test is no failed one. Where nothing below the
# process has used half a second of a processor for LOCKSTEP_SILENCE_S seconds (300), its tests stand still: they are aborted.
end_where_nothing_computes() {
  local limit=${LOCKSTEP_SILENCE_S:-300} last=0 since=$SECONDS used
  while sleep 2; do
    used=$(descendants_of "$1" | awk '{ used += $2 } END { print used + 0 }')
    if awk -v a="$last" -v b="$used" 'BEGIN { exit !(a - b > 0.5 || b - a > 0.5) }'; then
      last=$used since=$SECONDS
    elif ((SECONDS - since >= limit)); then
      say "    nothing has computed for $limit s: aborting the tests that stand still"
      descendants_of "$1" | awk '{ print $1, $3 }' | while read -r pid parent; do
        [[ $(cat "/proc/$parent/comm" 2>/dev/null) != ctest ]] || kill -ABRT "$pid" 2>/dev/null || true
      done
      since=$SECONDS
    fi
  done
}

# A line for each process below PID: its own, the processor seconds of it and of its ended children, its parent's.
descendants_of() {
  { cat /proc/[0-9]*/stat 2>/dev/null || true; } | awk -v top="$1" -v ticks="$(getconf CLK_TCK)" '
    { pid = $1; sub(/.*\) /, ""); parent[pid] = $2; used[pid] = ($12 + $13 + $14 + $15) / ticks }
    END {
      for (pid in parent) {
        for (at = pid; at in parent && at != top; at = parent[at]);
        if (at == top && pid != top) print pid, used[pid], parent[pid]
      }
    }'
}

# keep_skipped --preset PRESET ...: the tests that were skipped, with their reasons: within an entry of ctest's that passed, too.
keep_skipped() {
  local log=build/$2/Testing/Temporary/LastTest.log line
  [[ -r $log ]] || return 0
  while read -r line; do summary+=("    $line"); done < <(grep -a '^skipped: ' "$log" | sort -u)
}

# The failed tests of a log of ctest's, each with the last 40 lines that it printed: a reader of the closing lines alone
# sees what broke.
keep_failures() {
  local name
  while read -r name; do
    summary+=("failed: $name" "$(awk -v name="$name" '
      /^ *Start +[0-9]+: / || /^[0-9]+% tests passed/ || /^ *[0-9]+\/[0-9]+ Test +#/ { inside = 0 }
      /^ *[0-9]+\/[0-9]+ Test +#/ && index($0, ": " name " ") { inside = 1 }
      inside' "$1" | tail -n 40)")
  done < <(sed -n '/^The following tests FAILED:/,/^Errors while/s/^[[:space:]]*[0-9]* - \([^ ]*\) (.*/\1/p' "$1")
}

# Prints times and closing lines, and ends the script with its verdict.
end_with_summary() {
  print_times
  printf '%s\n' "${summary[@]}"
  exit "$failed"
}
