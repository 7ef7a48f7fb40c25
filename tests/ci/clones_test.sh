#!/usr/bin/env bash
# clones_test SOURCE_DIR BIN_DIR: two clones of one commit are one build, so no path of this one stands in the programs.
set -euo pipefail
source_dir=$1 bin_dir=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

holds_path() { grep -a -q -F "$source_dir/" "$1"; }

checked=0
for name in lockstep lockstep-rank; do
  [[ -e $bin_dir/$name ]] || continue
  checked=$((checked + 1))
  if holds_path "$bin_dir/$name"; then
    echo "clones_test: $bin_dir/$name holds paths of its clone:" >&2
    grep -a -o -F "$source_dir/" "$bin_dir/$name" | sort | uniq -c >&2
    exit 1
  fi
  cp "$bin_dir/$name" "$work/planted"
  printf '%s/harness/planted.cpp' "$source_dir" >>"$work/planted"
  holds_path "$work/planted" || { echo "clones_test: a planted path was not found" >&2; exit 1; }
done
# Commits that leave the rank program as it is leave its bytes, and with them finished runs.
commit=$("$bin_dir/lockstep" --version | sed -n 's/.*(commit \([0-9a-f]*\).*/\1/p')
if [[ -n $commit && -e $bin_dir/lockstep-rank ]]; then
  grep -a -q -F "$commit" "$bin_dir/lockstep" || { echo "clones_test: lockstep does not hold its commit $commit" >&2; exit 1; }
  if grep -a -q -F "$commit" "$bin_dir/lockstep-rank"; then echo "clones_test: lockstep-rank holds the commit $commit" >&2; exit 1; fi
fi
((checked > 0)) || { echo "clones_test: no program in $bin_dir" >&2; exit 1; }
