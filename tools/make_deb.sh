#!/usr/bin/env bash
# make_deb.sh: the Debian packages of what build/ holds, in build/deb, and what lintian has against them: its errors and warnings are errors.
set -euo pipefail
cd "$(dirname "$0")/.."
JOBS=${JOBS:-$(nproc)}

# dpkg writes beside the folder it is in: it gets one whose neighbour is build/deb.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/epipe"
for entry in * .[!.]*; do
  if [ -f "$entry" ]; then cp "$entry" "$work/epipe/"; fi
  if [ -d "$entry" ] && [ "$entry" != .git ] && [ "$entry" != debian ]; then ln -s "$PWD/$entry" "$work/epipe/$entry"; fi
done
cp -r debian "$work/epipe/debian"

package() {
  cd "$work/epipe"
  DEB_BUILD_OPTIONS="parallel=$JOBS nocheck" dpkg-buildpackage --build=binary --no-sign --no-check-builddeps --no-pre-clean
}
(package) > build/deb.log 2>&1 || { tail -40 build/deb.log; exit 1; }
rm -rf build/deb
mkdir build/deb
cp "$work"/*.deb build/deb/
lintian --allow-root --fail-on error,warning --suppress-tags bad-distribution-in-changes-file build/deb/*.deb
ls -l build/deb
