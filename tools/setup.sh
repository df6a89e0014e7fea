#!/usr/bin/env bash
# Installs the Debian packages named in the given lists that are not there yet. Says what to install when it may not.
# EPIPE_SKIP_SETUP=1 skips it, for machines that bring their own LibTorch (CMAKE_PREFIX_PATH).
set -euo pipefail

[ -z "${EPIPE_SKIP_SETUP:-}" ] || exit 0
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- packages.txt

wanted=$(sed 's/#.*//' "$@" | tr -s '[:space:]' '\n' | sed '/^$/d')
if ! command -v dpkg-query >/dev/null; then
  echo "setup: not a Debian system; make sure the equivalents of these are installed, then set EPIPE_SKIP_SETUP=1:" >&2
  echo $wanted >&2
  exit 1
fi

missing=""
for package in $wanted; do
  state=$(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null || true)
  case "$state" in ii*) ;; *) missing="$missing $package" ;; esac
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ]; then
  echo "setup: these packages are missing; install them as root, then run make again:" >&2
  echo "  apt-get install$missing" >&2
  exit 1
fi
echo "setup: installing$missing"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends $missing >/dev/null
