# Of each test here: a folder that goes at the end, and complaints, which it counts.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
complain() {
  echo "$(basename "$0" .sh): $*" >&2
  [[ ! -s $work/log ]] || sed 's/^/    /' "$work/log" >&2
  failures=$((failures + 1))
}
