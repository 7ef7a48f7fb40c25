#!/usr/bin/env bash
# package_test BUILD_DIR: the Debian package depends on what the programs are linked with and holds nothing of this machine.
set -euo pipefail
build=$1
for tool in cpack dpkg-deb dpkg-shlibdeps; do
  command -v "$tool" >/dev/null || { echo "package_test: skipped, there is no $tool (on Debian: apt-get install dpkg-dev)"; exit 77; }
done
source "$(dirname "$0")/lib.sh"

cpack --config "$build/CPackConfig.cmake" -G DEB -B "$work" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
deb=$(echo "$work"/lockstep_*.deb)
depends=$(dpkg-deb -f "$deb" Depends)
wanted="libc6 libfmt9 libgcc-s1 libstdc++6 libxxhash0 libyaml-cpp0.7"
if [[ -e $build/bin/lockstep-rank ]] && readelf -d "$build/bin/lockstep-rank" | grep -q libjemalloc; then wanted+=" libjemalloc2"; fi
found=$(tr ',' '\n' <<<"$depends" | sed 's/^ *//; s/ .*//' | LC_ALL=C sort | tr '\n' ' ')
[[ $found == "$(tr ' ' '\n' <<<"$wanted" | LC_ALL=C sort | tr '\n' ' ')" ]] || complain "depends on $depends; expected $wanted"

dpkg-deb -x "$deb" "$work/root"
for path in usr/bin/lockstep usr/share/lockstep/configs/smoke.yaml usr/share/doc/lockstep/copyright; do
  [[ -e $work/root/$path ]] || complain "holds no $path"
done
# Links into this machine, and data that others hold the rights to.
for path in usr/lib usr/share/lockstep/data; do
  [[ ! -e $work/root/$path ]] || complain "holds $path"
done
dpkg-deb -e "$deb" "$work/control"
for script in postinst prerm; do
  [[ -x $work/control/$script ]] || complain "has no $script"
  sh -n "$work/control/$script" || complain "$script is no shell script"
done
(cd "$work" && "$work/root/usr/bin/lockstep" plan smoke) >"$work/log" 2>&1 || { complain "its lockstep does not plan"; cat "$work/log" >&2; }

((failures == 0)) && echo "package_test: ok"
exit "$((failures > 0))"
