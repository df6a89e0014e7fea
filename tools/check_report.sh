#!/usr/bin/env bash
# Opens the report of one run and of three in headless Chromium: no error on the console, every chart drawn, tooltips and switches work.
#   tools/check_report.sh build/epipe [FOLDER]    FOLDER keeps the pages and a screenshot of each
set -euo pipefail

program=$(realpath "${1:?usage: tools/check_report.sh PROGRAM [FOLDER]}")
tools=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
[ $# -lt 2 ] || mkdir -p "$2"
out=$(realpath "${2:-$scratch}")
failed=0

# browse PAGE LOG FLAG...: a browser that reaches for nothing but the page.
browse() {
  local page=$1 log=$2 profile
  shift 2
  profile=$(mktemp -d -p "$scratch")
  timeout 120 chromium --headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update \
    --disable-sync --user-data-dir="$profile" --window-size=1400,3000 --hide-scrollbars --enable-logging=stderr --v=0 "$@" "file://$page" 2>"$log"
}

# check NAME RUN...: renders, opens, looks.
check() {
  local name=$1 page="$out/$1.html" probed="$scratch/$1.probed.html"
  shift
  "$program" report "$@" -o "$page"
  python3 "$tools/check_report.py" probe "$page" "$probed"
  browse "$probed" "$scratch/$name.log" --dump-dom >"$scratch/$name.dom"
  if grep CONSOLE "$scratch/$name.log"; then
    echo "$name: errors on the console"
    failed=1
  fi
  python3 "$tools/check_report.py" look "$scratch/$name.dom" $# || failed=1
  browse "$page" /dev/null --screenshot="$out/$name.png" >/dev/null
}

seed=0
for codec in none sort:6+2 ec:2; do
  seed=$((seed + 1))
  "$tools/make_sample_run.py" "$scratch/cnn, $codec" --codec "$codec" --seed $seed
done
mv "$scratch/cnn, ec:2" "$scratch/<script>throw 1;<!--&amp;"
check one "$scratch/cnn, sort:6+2"
check three "$scratch/cnn, none" "$scratch/cnn, sort:6+2" "$scratch/<script>throw 1;<!--&amp;"
[ $failed = 0 ] && echo "the report is drawn"
exit $failed
