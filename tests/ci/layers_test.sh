#!/usr/bin/env bash
# ci/layers: the tree passes; every planted violation is found where it stands, and nothing is found without it.
set -euo pipefail
source_dir=$1
source "$(dirname "$0")/lib.sh"

"$source_dir/ci/layers" "$source_dir" >"$work/own.log" || {
  cat "$work/own.log" >&2
  complain "the tree itself has violations"
}

# plant FILE TEXT EXPECTED: TEXT as a line of FILE in an otherwise clean tree; EXPECTED empty: it is allowed.
plant() {
  local file=$1 text=$2 expected=$3 tree=$work/tree
  rm -rf "$tree"
  mkdir -p "$tree/harness/base" "$tree/$(dirname "$file")"
  echo '#pragma once' >"$tree/harness/base/text.h"
  printf '// A file.\n%b\n' "$text" >"$tree/$file"
  # A tree of two files leaves permissions unused, which is no matter here.
  "$source_dir/ci/layers" "$tree" >"$work/log" || true
  if [[ -z $expected ]]; then
    ! grep -q "^$file:" "$work/log" || complain "found, though allowed, in $file: $text: $(cat "$work/log")"
  else
    grep -q "^$file:[0-9]*: .*$expected" "$work/log" || complain "$file: $text: expected $expected, got $(cat "$work/log")"
  fi
}

# says EXPECTED: what the last tree's whole report must say, or with "not EXPECTED" must not.
says() {
  if [[ $1 == "not "* ]]; then
    ! grep -qF "${1#not }" "$work/log" || complain "said, though it must not: $1"
  else
    grep -qF "$1" "$work/log" || complain "not said: $1; got $(cat "$work/log")"
  fi
}

include() { echo "#include $1"; }

plant harness/plan/matrix/a.cpp "$(include '"harness/base/text.h"')" ""
plant harness/plan/matrix/a.cpp "$(include '"harness/judge/trace/record.h"')" "harness/plan/matrix may not include harness/judge/trace/record.h"
plant harness/plan/matrix/a.cpp "$(include '<torch/torch.h>')" "harness/plan/matrix may not include torch/torch.h"
plant harness/judge/compare/a.cpp "$(include '<ATen/ATen.h>')" "may not include ATen"
plant harness/lib/data/a.cpp "$(include '<c10/core/Scalar.h>')" "may not include c10"
plant harness/lib/data/a.cpp "$(include '"harness/plan/config/run_config.h"')" ""
plant harness/lib/data/a.cpp "$(include '"harness/judge/trace/record.h"')" "harness/lib/data may not include"
plant harness/judge/trace/a.cpp "$(include '"harness/run/launchers/launcher.h"')" "harness/judge/trace may not include"
plant harness/cli/session/a.cpp "$(include '"harness/run/launchers/launcher.h"')" ""
plant harness/judge/trace/a.cpp "$(include '"harness/plan/config/run_config.h"')" ""
plant harness/judge/trace/a.cpp "$(include '"harness/plan/config/field.h"')" "harness/judge/trace may not include"
plant harness/trainers/comm/a.cpp "$(include '"harness/run/launchers/launcher.h"')" "harness/trainers/comm may not include"
plant harness/jobs/a.cpp "$(include '"harness/answer/questions/question_judge.h"')" "harness/jobs may not include"
plant harness/cli/a.cpp "$(include '"scenarios/energy/spec.h"')" "harness/cli may not include"
plant harness/cli/a.cpp "$(include '"reports/format.h"')" ""
plant losses/a.cpp "$(include '"harness/trainers/comm/comm.h"')" ""
plant losses/a.cpp "$(include '"harness/trainers/comm/gloo_comm.h"')" "losses may not include"
plant losses/a.cpp "$(include '<torch/torch.h>')" ""
plant losses/a.h "$(include '<torch/torch.h>')" "in a header"
plant scenarios/mutants/a.cpp "$(include '"harness/run/launchers/launcher.h"')" "scenarios may not include"
plant reports/a.cpp "$(include '"harness/run/launch.h"')" "reports may not include"
plant reports/a.cpp "#  include  \"harness/cli/args.h\"" "reports may not include"
plant reports/a.cpp "$(include '"html.h"')" "include from the root"
plant reports/a.h "$(include '<fmt/format.h>')" "fmt in a header"
plant tests/a.cpp "$(include '"harness/answer/questions/question_judge.h"')" ""
plant harness/cli/session/a.cpp "$(include '"harness/answer/questions/question_judge.h"')" ""
plant harness/cli/session/a.cpp "$(include '"harness/answer/questions/trials.h"')" "one question's own"
plant harness/answer/questions/a.cpp "$(include '"harness/answer/questions/trials.h"')" ""
plant tests/a.cpp "$(include '"harness/answer/questions/trials.h"')" ""
plant reports/a.cpp 'if (results.question == "mechanism") return;' "a line of a table"
plant reports/a.cpp 'if (asked.by_outcome) return;' ""
plant harness/a.cpp "int x;" "belongs into a folder"
plant harness/other/a.cpp "$(include '"harness/base/text.h"')" "not in the table"
plant losses/a.cpp "auto x = at::randn({3, 4});" "default generator"
plant losses/a.cpp "auto x = at::randn({3, 4}, generator);" ""
plant losses/a.cpp "auto x = torch::dropout(h, 0.1, true);" "own mask"
plant losses/a.cpp "// std::random_device is refused; so is std::rand()" ""
plant losses/a.cpp "std::random_device device;" "nobody can repeat"
plant harness/lib/data/a.cpp "std::normal_distribution<float> d;" "standard libraries"
plant tests/a.cpp "std::this_thread::sleep_for(1s);" "a test that sleeps"
plant tests/a.cpp "GTEST_SKIP();" "says why"
plant harness/suites/faults/a.cpp "const pid_t pid = ::fork();" "through a Supervisor"
plant harness/jobs/parent.cpp "const pid_t pid = ::fork();" ""
plant harness/suites/faults/a.cpp "launcher_->stop(run, SIGKILL);" "by the Supervisor alone"
plant harness/run/a.cpp "$(include '"harness/suites/engine/suite.h"')" "harness/run may not include"
plant harness/jobs/a.cpp "$(include '"harness/suites/faults/judge.h"')" "harness/jobs may not include"
plant harness/judge/causes/a.cpp 'if (failure.kind == "died") return;' "enumerations"
plant tests/a.cpp "$(printf '%.0s\\n' {1..810})" "longer than 800 lines"
plant tests/a.cpp "$(printf '%.0s\\n' {1..790})" ""

# A unit is a header with its source: these two include each other, though no header includes one that includes it.
tree=$work/circle
mkdir -p "$tree/harness/plan/matrix"
echo '#pragma once' | tee "$tree/harness/plan/matrix/a.h" >"$tree/harness/plan/matrix/b.h"
include '"harness/plan/matrix/b.h"' >"$tree/harness/plan/matrix/a.cpp"
"$source_dir/ci/layers" "$tree" >"$work/log" || true
says "not include cycle"
include '"harness/plan/matrix/a.h"' >"$tree/harness/plan/matrix/b.cpp"
"$source_dir/ci/layers" "$tree" >"$work/log" && complain "a circle of two units passes"
says "include cycle: harness/plan/matrix/a -> harness/plan/matrix/b -> harness/plan/matrix/a"

# plan may include base and config: each is asked for until it is used.
says "harness/plan/matrix may include harness/base, and does not"
mkdir -p "$tree/harness/base"
echo '#pragma once' >"$tree/harness/base/c.h"
include '"harness/base/c.h"' >>"$tree/harness/plan/matrix/a.cpp"
"$source_dir/ci/layers" "$tree" >"$work/log" || true
says "not harness/plan/matrix may include harness/base, and does not"
says "harness/plan/matrix may include harness/plan/config, and does not"

((failures == 0)) && echo "layers_test: ok"
exit "$((failures > 0))"
