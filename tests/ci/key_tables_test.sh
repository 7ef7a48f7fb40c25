#!/usr/bin/env bash
# key_tables_test SOURCE_DIR BIN_DIR: the tables of keys in the docs are those of the built program, and ci/key_tables --check finds
# a table that differs, a key without a row and a page that it cannot read.
set -euo pipefail
source_dir=$1 bin_dir=$2
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
source "$(dirname "$0")/lib.sh"

# tables EXPECTED ARGUMENTS...: ci/key_tables on the copy must end with that exit status.
tables() {
  local expected=$1 status=0
  shift
  "$source_dir/ci/key_tables" --docs "$work/docs" "$@" "$bin_dir/lockstep" >"$work/log" 2>&1 || status=$?
  ((status == expected)) || complain "$*: exit status $status, expected $expected: $(cat "$work/log")"
}

fresh_copy() {
  rm -rf "$work/docs"
  mkdir "$work/docs"
  cp "$source_dir"/docs/*.md "$work/docs"
}

says() { grep -qF -- "$1" "$work/log" || complain "not printed: $1; got $(cat "$work/log")"; }

fresh_copy
tables 0 --check
grep -qF '| `faults.seed` | `0` |' "$work/docs/config.md" || complain "docs/config.md has no row of faults.seed"

# A changed row is found and not repaired by --check, and repaired without it.
sed -i 's/^| `faults.seed` | `0` |/| `faults.seed` | `1` |/' "$work/docs/config.md"
cp "$work/docs/config.md" "$work/changed.md"
tables 1 --check
says "config.md: a table of keys differs"
cmp -s "$work/docs/config.md" "$work/changed.md" || complain "--check has written"
tables 0
tables 0 --check
cmp -s "$work/docs/config.md" "$source_dir/docs/config.md" || complain "the repaired page is not the original one"

# A key that no table names is found.
sed -i 's/^<!-- keys: saver. -->$/<!-- keys: saver. -saver.points -->/' "$work/docs/config.md"
tables 1
says "on no page: saver.points"

# A selector that names no key, and a marker without its end, are errors.
fresh_copy
sed -i 's/^<!-- keys: saver. -->$/<!-- keys: saver.nonsense -->/' "$work/docs/config.md"
tables 2 --check
says "no key saver.nonsense"
fresh_copy
sed -i '0,/^<!-- \/keys -->$/{//d}' "$work/docs/config.md"
tables 2 --check
says "are not in pairs"

((failures == 0)) && echo "key_tables_test: ok"
exit "$((failures > 0))"
