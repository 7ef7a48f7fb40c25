#!/usr/bin/env bash
# probe_cpp_test LOCKSTEP TRAINER: a trainer with a loop of its own, traced by the header of probe/cpp. One process and three Gloo ranks are
# quiet beside each other; planted mistakes are named; what free runs leave open a run that its reference leads decides.
set -euo pipefail
lockstep=$1 trainer=$2
source "$(dirname "$0")/../ci/lib.sh"
# train NAME WORLD_SIZE [FAULT]: into $work/NAME; the statuses of all ranks in $statuses.
train() {
  local rank pids=()
  rm -f "$work/store"
  for ((rank = 0; rank < $2; ++rank)); do
    LOCKSTEP_TRACE=$work/$1 "$trainer" "$rank" "$2" "$work/store" ${3:+"$3"} >"$work/$1.$rank.log" 2>&1 &
    pids+=($!)
  done
  statuses=''
  for rank in "${pids[@]}"; do
    wait "$rank" && statuses+=0 || statuses+=$?
  done
  cat "$work/$1".*.log >"$work/log"
}
# compares STATUS TEXT A B
compares() {
  local status=0
  "$lockstep" compare "$work/$3" "$work/$4" >"$work/log" 2>&1 || status=$?
  ((status == $1)) || complain "compare $3 $4: status $status instead of $1"
  grep -q -F -- "$2" "$work/log" || complain "compare $3 $4: nothing says \"$2\""
}

export LOCKSTEP_SNAPSHOTS=0,3
unset LOCKSTEP_LED_BY LOCKSTEP_EVERY
for level in hash full; do
  export LOCKSTEP_LEVEL=$level
  train one-$level 1
  [[ $statuses == 0 ]] || complain "one process: $statuses"
  for name in three again sum rate; do
    LOCKSTEP_LED_BY=$work/one-$level train $name-$level 3 "$name"
    [[ $statuses == 000 ]] || complain "$name: $statuses"
    ! grep -q lockstep_probe "$work/log" || complain "$name at level $level: the probe complains"
    [[ $(cut -d' ' -f4 "$work/log" | sort -u | wc -l) == 1 || $name == rate ]] || complain "$name: ranks end with different parameters"
  done
  compares 0 "every bit of 6 steps on 3 ranks agrees" three-$level again-$level
  compares 0 "2 steps up to step 3, which both begin with the same parameters, lie within rounding" one-$level three-$level
  train free-$level 3
  compares 5 "to decide: lockstep check --ranks 1,3 -- COMMAND" one-$level free-$level
  for reference in one three; do
    compares 1 "gradient-sum-not-mean" $reference-$level sum-$level
    compares 1 "the rate is 0.015 on rank 1" $reference-$level rate-$level
  done
done

# Recording changes no bit of the training; an exception is a partial step.
cp "$work/one-hash.0.log" "$work/recorded"
LOCKSTEP_SNAPSHOTS=none train blind 1
cmp -s "$work/log" "$work/recorded" || complain "keeping values changes the parameters"
LOCKSTEP_LEVEL=off train off 1
cmp -s "$work/log" "$work/recorded" || complain "the probe changes the training"
[[ ! -e $work/off ]] || complain "level off leaves a folder"
train thrown 1 throw
[[ $statuses == 1 ]] || complain "the trainer that throws: $statuses"
compares 5 "ends inside step 2" one-hash thrown

((failures == 0)) && echo "probe_cpp_test: ok"
exit "$((failures > 0))"
