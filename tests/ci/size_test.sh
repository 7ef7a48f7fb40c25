#!/usr/bin/env bash
# size_test SOURCE_DIR: ci/size accepts a tree within its budget; each planted excess fails, each row that shrank too, until --lower. ci/test asks it
# about the project's own tree, before anything is built.
set -euo pipefail
source_dir=$1
source "$(dirname "$0")/lib.sh"
says() { grep -qF -- "$1" "$work/log" || complain "not said: $1; got $(cat "$work/log")"; }
size() { "$source_dir/ci/size" "$@" "$tree" >"$work/log" 2>&1; }

tree=$work/tree
mkdir -p "$tree/ci" "$tree/harness/a" && git -C "$tree" init -q
commit() { git -C "$tree" add . && git -C "$tree" -c user.name=a -c user.email=a@b commit -qm "$1"; }
long_function() {
  echo "int $1(int x) {"
  for ((i = 0; i < $2 - 2; ++i)); do echo "  x += $i;"; done
  echo "}"
}
printf 'int used(int x);\nint own(int x);\n' >"$tree/harness/a/b.h"
{ echo '#include "harness/a/b.h"'; echo 'int own(int x) { return x; }'; long_function used 90; } >"$tree/harness/a/b.cpp"
printf 'int main() { return used(1); }\n' >"$tree/harness/a/c.cpp"
for _ in {1..200}; do echo "line"; done >"$tree/README.md"
cat >"$tree/ci/size.budget" <<'BUDGET'
harness 999 99999 9 9 9
ci 0 0 0 0 0
. 999 99999 9 9 9
function harness/a/b.cpp used 99
BUDGET
size && complain "a budget far above the tree was accepted"
says "run ci/size --lower"
size --lower || complain "after --lower: $(cat "$work/log")"
for _ in {1..2}; do size --lower || complain "--lower is not stable"; done
commit first
git -C "$tree" -c user.name=a -c user.email=a@b commit -q --allow-empty -m second
grep -q '^function harness/a/b.cpp used 90$' "$tree/ci/size.budget" || complain "the long function is not listed as it is"
grep -qE '^harness +95 +[0-9]+ +3 +0 +1$' "$tree/ci/size.budget" || complain "figures of harness: $(cat "$tree/ci/size.budget")"

# excess TEXT COMMAND...: the command makes an excess, of which ci/size says TEXT; afterwards the tree is as it was.
excess() {
  local text=$1
  shift
  "$@"
  size && complain "accepted: $text"
  says "$text"
  git -C "$tree" checkout -q . && git -C "$tree" clean -fdq
}
append() { printf '%b\n' "$2" >>"$tree/$1"; }
add_file() { : >"$tree/harness/a/d.cpp"; }
grow() { { echo '#include "harness/a/b.h"'; echo 'int own(int x) { return x; }'; long_function used 91; } >"$tree/harness/a/b.cpp"; }
another() { long_function other 81 >"$tree/harness/a/c.cpp"; }
shrink() { head -n 150 "$tree/README.md" >"$work/short" && cp "$work/short" "$tree/README.md"; }
raise() { sed -i 's/^\. .*/. 999 99999 9 9 9/' "$tree/ci/size.budget"; }
allow() { sed -i 's/used 90/used 95/' "$tree/ci/size.budget" && grow; }
# One row up, another down by as much: what is missing is the reason.
move() { awk '$1 == "harness" { $2 += 2; $3 += 10 } $1 == "." { $2 -= 2; $3 -= 10 } 1' "$tree/ci/size.budget" >"$work/b" &&
  cp "$work/b" "$tree/ci/size.budget" && sed -i '1,2d' "$tree/README.md"; }
excess "1 above the budget of 95" append harness/a/c.cpp ""
excess "files, 1 above the budget of 3" add_file
excess "bytes, 5 above" sed -i 's/return used/    return used/; $s/$/ /' "$tree/harness/a/c.cpp"
excess "wide, 1 above the budget of 0" append harness/a/c.cpp "// $(printf 'x%.0s' {1..130})"
excess "used has 91 lines, of 90 allowed" grow
excess "other has 81 lines, of 80 allowed" another
excess "private, 1 above the budget of 1" append harness/a/b.h "int fresh(int x);"
excess "more than 3 % below the budget" shrink
excess "lower another row by as much" raise
excess "lets used in harness/a/b.cpp grow to 95 lines" allow
excess "DECISIONS.md must say why" move
size || complain "the tree as it was: $(cat "$work/log")"

((failures == 0)) && echo "size_test: ok"
exit "$((failures > 0))"
