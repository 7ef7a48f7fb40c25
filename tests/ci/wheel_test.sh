#!/usr/bin/env bash
# wheel_test SOURCE_DIR BUILD_DIR [PYTHON]: what ci/wheel packs works where there is no compiler, no index and no library of ours: the program
# starts, finds its configs and compares two traces; the probe is imported; the torch of the environment is left as it is; and
# action.yml, done as a runner does it, checks a trainer with them.
set -euo pipefail
source_dir=$1 build=$2 python=${3:-}
program=$build/portable/lockstep
library=$(find "$build" -name liblockstep_hash.so -print -quit)
probe=$source_dir/probe/python/lockstep_probe
command -v readelf >/dev/null || { echo "wheel_test: skipped, there is no readelf"; exit 77; }
[[ -n $python ]] || { echo "wheel_test: skipped, no Python has the torch package of this LibTorch"; exit 77; }
[[ -e $program ]] || { echo "wheel_test: skipped, $program is not built (yaml-cpp or xxhash has no static library here)"; exit 77; }
[[ -d $probe && -n $library ]] || { echo "wheel_test: skipped, there is no $probe, or lockstep_hash is not built"; exit 77; }
source "$(dirname "$0")/lib.sh"

version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")
write_wheels() {
  python3 "$source_dir/ci/write_wheels.py" "$1" --probe "$probe" --program "$program" --hash-library "$library" \
    --configs "$source_dir/configs" >"$work/log" 2>&1 || { complain "the wheels were not written"; exit 1; }
}
write_wheels "$work/wheels"
write_wheels "$work/again"
for wheel in "$work"/wheels/*.whl; do
  cmp "$wheel" "$work/again/$(basename "$wheel")" || complain "the same files made another $(basename "$wheel")"
done
probe_wheel=$work/wheels/lockstep_probe-$version-py3-none-any.whl
judge_wheel=$(echo "$work/wheels/lockstep_judge-$version"-py3-none-manylinux_2_*_x86_64.whl)
for wheel in "$probe_wheel" "$judge_wheel"; do [[ -e $wheel ]] || complain "there is no $wheel"; done
if readelf -d "$program" | grep NEEDED | grep -vE '\[(libc|libm|libpthread|ld-linux-x86-64)\.so\.[0-9]+\]' >"$work/log"; then
  complain "the program is linked with more than glibc"
fi
python3 -c 'import sys, zipfile; print(*zipfile.ZipFile(sys.argv[1]).namelist(), sep="\n")' "$judge_wheel" >"$work/log"
! grep -q __pycache__ "$work/log" || complain "the wheel holds what Python compiled"

# Nothing of this machine's programs is on PATH; torch is seen through a .pth, as in an environment that has one.
"$python" -m venv "$work/venv"
purelib='import sysconfig; print(sysconfig.get_path("purelib"))'
"$python" -c "$purelib" >"$("$work/venv/bin/python" -c "$purelib")/torch_beside.pth"
alone() { (cd "$work" && env -i HOME="$work" PATH="$work/venv/bin" PIP_CONFIG_FILE=/dev/null PYTHONWARNINGS=ignore "$@") >"$work/log" 2>&1 </dev/null; }
# ends STATUS TEXT COMMAND...: the command ends with that status and says the text, wherever.
ends() {
  local wanted=$1 text=$2 status=0
  shift 2
  alone "$@" || status=$?
  ((status == wanted)) || complain "$*: status $status instead of $wanted"
  grep -q -F -- "$text" "$work/log" || complain "$*: nothing says \"$text\""
}
# Python 3.11 puts an old setuptools into each environment; torch wants the newer one beside it.
alone pip --disable-pip-version-check uninstall -y setuptools || complain "setuptools stays"
ends 0 "Successfully installed" pip --disable-pip-version-check install --no-index "$probe_wheel" "$judge_wheel"
! grep -q "Uninstalling" "$work/log" || complain "the installation replaced something"
ends 0 "lockstep $version" lockstep --version
ends 0 "compare" lockstep --help
ends 0 "smoke" lockstep plan smoke
pairs=$source_dir/tests/conformance/verdicts
ends 0 "the same" lockstep compare "$pairs/twice/a" "$pairs/twice/b"
ends 1 "different from step" lockstep compare "$pairs/average-of-old-weights/a" "$pairs/average-of-old-weights/b"
ends 0 "$work/venv" python -c 'import lockstep_probe; print(lockstep_probe.__file__)'
# The probe takes the hash library of the other wheel, and the program reads what it writes.
ends 0 "Native" python -c 'from lockstep_probe import hashing; print(type(hashing.load()).__name__)'
cat >"$work/train.py" <<'TRAIN'
import random, sys, torch, lockstep_probe
random.seed(1), torch.manual_seed(1)
model = torch.nn.Linear(5, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
probe = lockstep_probe.attach(model, optimizer, out=sys.argv[1])
for step in range(3):
    optimizer.zero_grad()
    loss = model(torch.ones(4, 5)).square().mean()
    loss.backward()
    optimizer.step()
    probe.step(loss)
print("trained")
TRAIN
for run in a b; do ends 0 "trained" python train.py $run; done
ends 0 "every bit of 3 steps on 1 rank agrees" lockstep compare a b
ends 0 "lockstep $version without lockstep-rank" lockstep doctor
ends 0 "$version with torch" lockstep doctor
! grep -rnE '^ +\w+: [A-Za-z_.]+ \| ' "$probe" --include '*.py' >"$work/log" || complain "Python 3.9 cannot evaluate this annotation"
mkdir "$work/action"
python3 -c 'import re, sys; print(re.search(r"```python\n(.*?)```", sys.stdin.read(), re.S)[1])' <"$source_dir/docs/start.md" >"$work/action/train.py"
ends 0 "action: ok" /usr/bin/env PATH="$work/venv/bin:$PATH" python "$source_dir/tests/ci/action.py" "$source_dir/action.yml" "$work/wheels" \
  "$work/action/train.py" "$work/action"
ends 0 "No broken requirements found" pip --disable-pip-version-check check
ends 0 "Successfully uninstalled" pip --disable-pip-version-check uninstall -y lockstep-probe lockstep-judge
[[ ! -e $work/venv/bin/lockstep ]] || complain "the program is left behind"

((failures == 0)) && echo "wheel_test: ok"
exit "$((failures > 0))"
