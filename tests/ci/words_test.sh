#!/usr/bin/env bash
# words_test SOURCE_DIR: ci/words passes on the tree, and finds a word of the former dialect that is planted in code, a config or a page.
set -euo pipefail
source_dir=$1
source "$(dirname "$0")/lib.sh"

"$source_dir/ci/words" >"$work/own.log" || { cat "$work/own.log" >&2; complain "the tree itself has such words"; }

# plant FILE LINE EXPECTED: LINE in FILE of a tree of its own; EXPECTED empty: it is allowed.
plant() {
  local file=$1 line=$2 expected=$3 tree=$work/tree
  rm -rf "$tree"
  mkdir -p "$tree/$(dirname "$file")"
  printf '%s\n' "$line" >"$tree/$file"
  git -C "$tree" init -q && git -C "$tree" add .
  if "$source_dir/ci/words" "$tree" >"$work/log"; then
    [[ -z $expected ]] || complain "$file: $line: not found"
  else
    [[ -n $expected ]] || complain "$file: $line: found, though allowed"
    grep -q "say $expected" "$work/log" || complain "$file: $line: $(cat "$work/log")"
  fi
}
plant harness/run/a.cpp "// the rank's beats" "heartbeat"
plant docs/a.md "Whoever the carrier is" "transport"
plant configs/a.yaml "# runs are held against each other" "compared with"
plant docs/a.md "results.json's key \`laboratory\`" ""
plant harness/a.cpp 'json["carrier"] = name;' ""
plant harness/a.cpp "the heartbeat of the launcher" ""

((failures == 0)) && echo "words_test: ok"
exit "$((failures > 0))"
