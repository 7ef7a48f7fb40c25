#!/usr/bin/env bash
# install_test BUILD_DIR: what `cmake --install` leaves works from an empty folder, and says what to do next where a part is missing.
set -euo pipefail
build=$1
source "$(dirname "$0")/lib.sh"
prefix=$work/prefix
unset LOCKSTEP_DATA LOCKSTEP_RANK LOCKSTEP_LIBTORCH

# ends STATUS TEXT COMMAND...: the command ends with that status and says the text, wherever.
ends() {
  local wanted=$1 text=$2 status=0
  shift 2
  "$@" >"$work/log" 2>&1 </dev/null || status=$?
  ((status == wanted)) || complain "$*: status $status instead of $wanted"
  grep -q -F -- "$text" "$work/log" || complain "$*: nothing says \"$text\""
}

cmake --install "$build" --prefix "$prefix" >"$work/log" 2>&1 || complain "cmake --install failed"
mkdir "$work/empty"
cd "$work/empty"
lockstep=$prefix/bin/lockstep

ends 0 "lockstep 0." "$lockstep" --version
ends 0 "$prefix/share/lockstep/configs/smoke.yaml" "$lockstep" list configs
grep -q '"anyOf"' "$prefix/share/lockstep/configs/matrix.schema.json" || complain "no schema is installed"
for name in smoke smoke.yaml configs/smoke.yaml; do
  ends 0 "9 runs: 9 to run" "$lockstep" plan "$name"
done
# The working folder's own comes first.
sed 's/^name: smoke/name: own/' "$prefix/share/lockstep/configs/smoke.yaml" >smoke.yaml
ends 0 "own · " "$lockstep" plan smoke.yaml
rm smoke.yaml
ends 2 "none.yaml" "$lockstep" plan none.yaml

rm -rf "$prefix/share/lockstep/data"
ends 2 "$prefix/share/lockstep/data/BasicMotions_TRAIN.ts: no such file" "$lockstep" run parity_1x24_vs_8x3
ends 2 "name its folder in LOCKSTEP_DATA" "$lockstep" run parity_1x24_vs_8x3
ends 7 "/nowhere/lockstep-rank" env LOCKSTEP_RANK=/nowhere/lockstep-rank "$lockstep" run smoke
if [[ ! -e $prefix/bin/lockstep-rank ]]; then
  ends 0 "no lockstep-rank beside it" "$lockstep" --version
  ends 7 "name it in LOCKSTEP_RANK" "$lockstep" run smoke
else
  cmp "$build/bin/lockstep-rank" "$prefix/bin/lockstep-rank" || complain "the installed rank program is another build"
  ends 0 "LibTorch 2.13" "$lockstep" --version
  ends 0 "LibTorch 2.13" "$prefix/bin/lockstep-rank" --version
  # As from anywhere: the clone's LibTorch is reached by the link alone.
  ends 0 "2 real ranks on Gloo agree bit for bit" "$lockstep" doctor
  libtorch=$(readlink "$prefix/lib/lockstep/libtorch")
  rm "$prefix/lib/lockstep/libtorch"
  ends 7 "LibTorch 2.13.0 not found" "$lockstep" run smoke
  ends 7 "ln -s FOLDER $prefix/lib/lockstep/libtorch" "$lockstep" run smoke
  ends 7 "not ok" "$lockstep" doctor
  ends 0 "2 real ranks on Gloo agree bit for bit" env LOCKSTEP_LIBTORCH="$libtorch" "$lockstep" doctor
  mv "$prefix/bin/lockstep-rank" "$work/"
  ends 7 "name it in LOCKSTEP_RANK" "$lockstep" run smoke
fi

((failures == 0)) && echo "install_test: ok"
exit "$((failures > 0))"
