# Shared by the scripts beside it; sourced, not run. Messages go to stderr, so that a script's output stays its own.
# shellcheck shell=bash

lockstep_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$lockstep_root"

say() { printf '%s\n' "$*" >&2; }

# die STATUS MESSAGE...: 2 is a thing that the caller can mend, 7 the machine's fault.
die() {
  local status=$1
  shift
  say "ci/$(basename "$0"): $*"
  exit "$status"
}

# step TITLE COMMAND...: says what begins, runs it, says how long it took. A failure ends the script, unless the caller
# takes it (step … || …).
step() {
  current_step=$1
  step_started=$EPOCHREALTIME
  step_cpu_started=$(cpu_seconds)
  shift
  say "==> $current_step"
  "$@"
  local status=$?
  step_ended "$status"
  return "$status"
}

step_ended() {
  local status=$1 seconds
  seconds=$(awk -v a="$step_started" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')
  step_times+=("$(awk -v wall="$seconds" -v a="$step_cpu_started" -v b="$(cpu_seconds)" -v title="$current_step" \
    'BEGIN { printf "%8.1f %8.1f  %s", wall, b - a, title }')")
  if ((status == 0)); then
    say "    done in $seconds s: $current_step"
  else
    say "    failed ($status) after $seconds s: $current_step"
  fi
  current_step=''
}

# Processor seconds of the commands that this script has waited for.
cpu_seconds() { awk -v ticks="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); print ($14 + $15) / ticks }' "/proc/$$/stat"; }

# How long each step took that this script has made.
step_times=()
print_times() {
  say "==> seconds, processor seconds, step"
  if ((${#step_times[@]})); then say "$(printf '%s\n' "${step_times[@]}")"; fi
  say "==> all of it took $((SECONDS / 60)) min $((SECONDS % 60)) s, $(cpu_seconds) processor seconds"
}

# A command that fails inside a step ends the script there and then: the step is still named.
current_step=''
trap 'status=$?; [[ -z $current_step ]] || step_ended "$status"' EXIT

# Compilers of LibTorch code take about 2 GB each: as many jobs as cores and memory allow. LOCKSTEP_JOBS overrides.
build_jobs() {
  if [[ -n ${LOCKSTEP_JOBS:-} ]]; then
    echo "$LOCKSTEP_JOBS"
    return
  fi
  awk -v cores="$(nproc)" '/^MemAvailable:/ { jobs = int($2 / 2000000) }
    END { if (jobs < 1) jobs = 1; print (jobs < cores ? jobs : cores) }' /proc/meminfo
}

# What ci/bootstrap found: CMAKE_PREFIX_PATH with LibTorch, LOCKSTEP_PYTHON, LOCKSTEP_DATA_SOURCE.
load_environment() {
  [[ -r .lockstep/env ]] || die 2 ".lockstep/env is missing; run ci/bootstrap"
  # shellcheck disable=SC1091
  source .lockstep/env
}
