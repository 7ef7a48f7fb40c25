#!/usr/bin/env bash
# pages_test SOURCE_DIR UNIT_TEST: every page of the golden tests can be read in Chromium, wide and narrow, light and dark; and page_check.py
# names what is planted.
set -euo pipefail
source_dir=$1
unit_test=$2
pages=$source_dir/tests/reports/pages
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# planted EXPECTED BODY: a page with that body is called unreadable, in these words.
planted() {
  printf '<!DOCTYPE html><html lang="en"><head><meta name="viewport" content="width=device-width"><title>t</title></head><body><main>%s</main></body></html>' \
    "$2" >"$work/planted.html"
  local status=0
  python3 "$pages/page_check.py" "$work/planted.html" >"$work/said" 2>&1 || status=$?
  ((status != 77)) || { cat "$work/said"; exit 77; }
  if ((status != 1)) || ! grep -q -- "$1" "$work/said"; then
    cat "$work/said" >&2
    echo "pages_test: status $status, and nothing says \"$1\"" >&2
    failures=$((failures + 1))
  fi
}
planted "a cell of" '<table style="width:60px;table-layout:fixed;overflow-wrap:anywhere"><tr><td>identical<td>divergent<td>equivalent<td>failed<td>wrong</table>'
planted "beyond its box" '<div style="width:80px">indistinguishable-from-the-reference</div>'
planted "the page is" '<div style="width:2000px">wide</div>'
planted "its policy lets \[\] run" '<script>let tip;</script>'
planted "beyond its chart" '<svg width="100" height="20"><text x="90" y="10">out of it</text></svg>'
planted "the keyboard cannot scroll" '<div style="overflow-x:auto;width:100px"><div style="width:400px">wide</div></div>'
planted "has no name" '<div tabindex="0" style="overflow-x:auto;width:100px"><div style="width:400px">wide</div></div>'
planted "nothing shows that it goes on" '<div tabindex="0" role="region" aria-label="t" style="overflow-x:auto;width:100px"><div style="width:400px">wide</div></div>'

LOCKSTEP_PAGES="$work/pages" "$unit_test" --gtest_filter=Golden.Pages --gtest_brief=1 || failures=$((failures + 1))
python3 "$pages/page_check.py" --axe "$source_dir/.lockstep/axe/axe.min.js" "$work"/pages/*.html || failures=$((failures + 1))
((failures == 0)) && echo "pages_test: ok"
exit "$((failures > 0))"
