#!/usr/bin/env bash
# ci/layers: the tree passes; every planted violation is found where it stands, and nothing is found without it.
set -euo pipefail
source_dir=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

complain() {
  echo "layers_test: $*" >&2
  failures=$((failures + 1))
}

"$source_dir/ci/layers" "$source_dir" >"$work/own.log" || {
  cat "$work/own.log" >&2
  complain "the tree itself has violations"
}

# plant FILE TEXT EXPECTED: TEXT as a line of FILE in an otherwise clean tree; EXPECTED empty: it is allowed.
plant() {
  local file=$1 text=$2 expected=$3 tree=$work/tree
  rm -rf "$tree"
  mkdir -p "$tree/harness/plan" "$tree/$(dirname "$file")"
  echo '#pragma once' >"$tree/harness/base/errors.h"
  printf '// A file.\n%b\n' "$text" >"$tree/$file"
  if "$source_dir/ci/layers" "$tree" >"$work/log"; then
    [[ -z $expected ]] || complain "not found in $file: $text"
  elif [[ -z $expected ]]; then
    complain "found, though allowed, in $file: $text: $(cat "$work/log")"
  else
    grep -q "^$file:[0-9]*: .*$expected" "$work/log" || complain "$file: $text: expected $expected, got $(cat "$work/log")"
  fi
}

include() { echo "#include $1"; }

plant harness/plan/a.cpp "$(include '"harness/base/errors.h"')" ""
plant harness/plan/a.cpp "$(include '"harness/trace/record.h"')" "harness/plan may not include harness/trace/record.h"
plant harness/plan/a.cpp "$(include '<torch/torch.h>')" "harness/plan may not include torch/torch.h"
plant harness/judge/a.cpp "$(include '<ATen/ATen.h>')" "may not include ATen"
plant harness/data/a.cpp "$(include '<c10/core/Scalar.h>')" "may not include c10"
plant harness/data/a.cpp "$(include '"harness/config/run_config.h"')" ""
plant harness/data/a.cpp "$(include '"harness/trace/record.h"')" "harness/data may not include"
plant harness/trace/a.cpp "$(include '"harness/launch/launcher.h"')" "harness/trace may not include"
plant harness/judge/a.cpp "$(include '"harness/launch/launcher.h"')" ""
plant harness/comm/a.cpp "$(include '"harness/launch/beat.h"')" ""
plant harness/comm/a.cpp "$(include '"harness/launch/launcher.h"')" "harness/comm may not include"
plant harness/rank/a.cpp "$(include '"harness/questions/judge.h"')" "harness/rank may not include"
plant harness/cli/a.cpp "$(include '"scenarios/energy.h"')" "harness/cli may not include"
plant harness/cli/a.cpp "$(include '"reports/html.h"')" ""
plant losses/a.cpp "$(include '"harness/comm/comm.h"')" ""
plant losses/a.cpp "$(include '"harness/comm/gloo_comm.h"')" "losses may not include"
plant losses/a.cpp "$(include '<torch/torch.h>')" ""
plant losses/a.h "$(include '<torch/torch.h>')" "in a header"
plant scenarios/mutants/a.cpp "$(include '"harness/launch/launcher.h"')" "scenarios may not include"
plant reports/a.cpp "$(include '"harness/plan/plan.h"')" "reports may not include"
plant reports/a.cpp "#  include  \"harness/cli/args.h\"" "reports may not include"
plant reports/a.cpp "$(include '"html.h"')" "include from the root"
plant reports/a.h "$(include '<fmt/format.h>')" "fmt in a header"
plant tests/a.cpp "$(include '"harness/questions/judge.h"')" ""
plant harness/a.cpp "int x;" "belongs into a room"
plant harness/other/a.cpp "$(include '"harness/base/errors.h"')" "no room of the table"
plant losses/a.cpp "auto x = at::randn({3, 4});" "default generator"
plant losses/a.cpp "auto x = at::randn({3, 4}, generator);" ""
plant losses/a.cpp "auto x = torch::dropout(h, 0.1, true);" "own mask"
plant losses/a.cpp "// std::random_device is refused; so is std::rand()" ""
plant losses/a.cpp "std::random_device device;" "nobody can repeat"
plant harness/data/a.cpp "std::normal_distribution<float> d;" "standard libraries"
plant tests/a.cpp "std::this_thread::sleep_for(1s);" "a test that sleeps"
plant tests/a.cpp "GTEST_SKIP();" "says why"
plant tests/a.cpp "$(printf '%.0s\\n' {1..510})" "longer than 500 lines"
plant tests/a.cpp "$(printf '%.0s\\n' {1..480})" ""

((failures == 0)) && echo "layers_test: ok"
exit "$((failures > 0))"
