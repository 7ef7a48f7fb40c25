#!/usr/bin/env bash
# ci/bootstrap without a network and without installing anything: what it accepts, refuses and falls back to.
set -euo pipefail
source_dir=$1
source "$(dirname "$0")/lib.sh"


# A checkout of its own, and shims: every package is installed, apt-get only notes its call.
mkdir -p "$work/checkout" "$work/bin" "$work/empty"
cp -r "$source_dir/ci" "$work/checkout/ci"
printf '#!/bin/sh\n[ -e "%s/missing" ] && [ "$4" = ninja-build ] || printf installed\n' "$work" >"$work/bin/dpkg-query"
printf '#!/bin/sh\necho "$@" >>"%s/apt.calls"\n' "$work" >"$work/bin/apt-get"
chmod +x "$work"/bin/*
prefix() { # prefix NAME VERSION: a folder that looks like LibTorch's
  mkdir -p "$work/$1/Torch"
  printf 'set(PACKAGE_VERSION "%s")\n' "$2" >"$work/$1/Torch/TorchConfigVersion.cmake"
}
prefix right 2.13.0
prefix wrong 2.12.1

bootstrap() { # bootstrap PREFIX [OPTION]: in the checkout, with an index that has nothing
  env PATH="$work/bin:$PATH" CMAKE_PREFIX_PATH="$1" PIP_NO_INDEX=1 PIP_FIND_LINKS="$work/empty" PIP_CONFIG_FILE=/dev/null \
    "$work/checkout/ci/bootstrap" "${@:2}" >"$work/log" 2>&1
}
logged() { grep -q -- "$1" "$work/log" || complain "nothing says \"$1\""; }

status=0
bootstrap "$work/empty:$work/right" || status=$?
((status == 0)) || complain "a right LibTorch without a network: status $status"
logged "LibTorch 2.13.0 of CMAKE_PREFIX_PATH: $work/right"
logged "generated data will be used instead (data.source=synthetic)"
grep -q 'LOCKSTEP_DATA_SOURCE=synthetic' "$work/checkout/.lockstep/env" || complain "the environment does not say synthetic"
grep -q "CMAKE_PREFIX_PATH=$work/empty:$work/right" "$work/checkout/.lockstep/env" || complain "the prefix is lost"
[[ ! -e $work/checkout/.lockstep/venv ]] || complain "made a venv though LibTorch was given"
[[ ! -e $work/apt.calls ]] || complain "called apt-get though nothing was missing"

status=0
bootstrap "$work/wrong" || status=$?
((status == 2)) || complain "another LibTorch: status $status instead of 2"
logged "names LibTorch 2.12.1 in $work/wrong; lockstep needs 2.13"

status=0
bootstrap "" || status=$?
((status == 7)) || complain "no LibTorch and no network: status $status instead of 7"
logged "set CMAKE_PREFIX_PATH to a LibTorch 2.13"

printf '#!/bin/sh\nprintf "Filesystem 1024-blocks Used Available\\nx 1 1 204800 1%%%% /\\n"\n' >"$work/bin/df"
chmod +x "$work/bin/df"
status=0
bootstrap "$work/right" || status=$?
((status == 7)) || complain "a full disk: status $status instead of 7"
logged "200 MB are free in $work/checkout; the build needs about 1500 MB"
rm "$work/bin/df"

status=0
"$work/checkout/ci/bootstrap" --program >"$work/log" 2>&1 || status=$?
((status == 2)) || complain "an unknown option: status $status instead of 2"
logged "unknown option --program; --programs, --clusters, or nothing"

printf '#!/bin/sh\n[ "$4" = libgtest-dev ] || printf installed\n' >"$work/bin/dpkg-query"
status=0
bootstrap "$work/right" --programs || status=$?
((status == 0)) || complain "programs alone without what tests need: status $status"
[[ ! -e $work/apt.calls ]] || complain "called apt-get for the tests' packages though programs alone are wanted"
printf '#!/bin/sh\n[ -e "%s/missing" ] && [ "$4" = ninja-build ] || printf installed\n' "$work" >"$work/bin/dpkg-query"

touch "$work/missing"
status=0
bootstrap "$work/right" || status=$?
if ((EUID == 0)); then
  ((status == 0)) || complain "a missing package as root: status $status"
  grep -q 'install .*ninja-build$' "$work/apt.calls" || complain "apt-get was not asked for just ninja-build"
else
  ((status == 2)) || complain "a missing package, not root: status $status instead of 2"
  logged "missing Debian packages: ninja-build; install them with: sudo apt-get install -y ninja-build"
fi

((failures == 0)) && echo "bootstrap_test: ok"
exit "$((failures > 0))"
