#!/usr/bin/env bash
# The Python package as `pip` makes it: an sdist, a wheel built from it, and `pip install .` in the checkout. Each is installed into a fresh
# virtual environment in a temporary folder and used from there. Needs a registry for build, scikit-build-core and twine, and the packages of
# packages.txt.
#
#   tools/check_wheel.sh [sdist] [checkout]    which to build and install; by default both
#   PYTHON   an interpreter that imports torch and numpy                        /usr/bin/python3, otherwise python3
#   SOURCE   where the sdist is unpacked and built: a fixed folder, for ccache  build/wheel/source
#   BUILD    where the checkout is built                                        build/wheel/build
#   JOBS     compilers at once                                                  2
#
# Leaves sdist and wheel in build/wheel/dist.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- sdist checkout
[ -n "${PYTHON:-}" ] || PYTHON=$([ -x /usr/bin/python3 ] && echo /usr/bin/python3 || echo python3)
root=$PWD
folder=$root/build/wheel
: "${SOURCE:=$folder/source}" "${BUILD:=$folder/build}" "${JOBS:=2}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "check_wheel: $*" >&2; exit 1; }
quietly() { "$@" > "$work/log" 2>&1 || { cat "$work/log" >&2; fail "failed: $*"; }; }

torch=$("$PYTHON" -c 'import numpy, torch; print(torch.__path__[0])') || fail "expected $PYTHON to import torch and numpy; PYTHON names another one"
export CMAKE_BUILD_PARALLEL_LEVEL=$JOBS

# environment NAME [torch]: a virtual environment, with the torch and numpy of PYTHON or without.
environment() {
  "$PYTHON" -m venv "$work/$1" || fail "$PYTHON -m venv failed (Debian: apt-get install python3-venv)"
  [ "${2:-}" != torch ] || dirname "$torch" > "$(echo "$work/$1"/lib/python3*/site-packages)/torch.pth"
}

# use NAME: imports epipe in environment NAME, from a folder where nothing else is, and runs the tests of the package.
use() {
  cd "$work"
  "$work/$1/bin/python3" - "$work/$1" << 'EOF'
import contextlib, importlib.metadata, io, os, subprocess, sys
import epipe, torch
assert epipe.__file__.startswith(sys.argv[1]), epipe.__file__
x = torch.nn.functional.avg_pool2d(torch.randn(4, 8, 18, 18), 3, 1)
for spec in ("none", "ec:2", "dct:1"):
    y = epipe.decode(epipe.Codec(spec).encode(x))
    assert y.shape == x.shape and float((x - y).square().sum()) <= 0.5 * float(x.square().sum()), spec
assert torch.equal(epipe.decode(epipe.Codec("none").encode(x)), x)
with contextlib.redirect_stdout(io.StringIO()) as page:
    help(epipe)
assert "class Codec" in page.getvalue() and "class RemoteStage" in page.getvalue()
assert importlib.metadata.version("epipe") == epipe.__version__
assert epipe.program().startswith(sys.argv[1]), epipe.program()
for command in ([epipe.program()], [sys.executable, "-m", "epipe"], [os.path.join(sys.argv[1], "bin", "epipe")]):
    said = subprocess.run([*command, "--version"], stdout=subprocess.PIPE, check=True, text=True).stdout
    assert epipe.__version__ in said, said
EOF
  "$work/$1/bin/python3" "$root/tests/python/package_test.py"
  cd "$root"
}

environment tools torch
quietly "$work/tools/bin/python3" -m pip install --quiet "scikit-build-core>=0.8" build twine
pip=("$work/tools/bin/python3" -m pip)
mkdir -p "$folder/dist"
for what in "$@"; do
  started=$SECONDS
  case $what in
    sdist)
      rm -f "$folder"/dist/*
      quietly "$work/tools/bin/python3" -m build --sdist --no-isolation --outdir "$folder/dist" .
      mkdir -p "$SOURCE"
      find "$SOURCE" -mindepth 1 -maxdepth 1 -exec rm -rf {} +
      tar -xzf "$folder"/dist/epipe-*.tar.gz --strip-components 1 -C "$SOURCE"
      cd "$SOURCE"
      quietly "${pip[@]}" wheel --quiet --no-build-isolation --no-deps --config-settings=build-dir=build --wheel-dir "$folder/dist" .
      cd "$root"
      quietly "$work/tools/bin/twine" check --strict "$folder"/dist/*
      names=$("$PYTHON" -m zipfile --list "$folder"/dist/epipe-*.whl | awk '{print $1}')
      for name in epipe/py.typed epipe/__init__.pyi epipe/__init__.py epipe/_build_info.py epipe/bin/epipe; do
        grep -qx "$name" <<< "$names" || fail "expected $name in the wheel, got:"$'\n'"$names"
      done
      ! grep -vE '^(File|epipe/|epipe-[0-9.]+\.dist-info/)' <<< "$names" || fail "expected nothing but epipe in the wheel"
      environment wheel torch
      quietly "$work/wheel/bin/python3" -m pip install --quiet --no-index --no-deps "$folder"/dist/epipe-*.whl
      use wheel
      environment bare
      quietly "$work/bare/bin/python3" -m pip install --quiet --no-index --no-deps "$folder"/dist/epipe-*.whl
      said=$(cd "$work" && "$work/bare/bin/python3" -c 'import epipe' 2>&1) && fail "expected an ImportError without torch"
      grep -q 'ImportError: epipe needs PyTorch [0-9.]*, and `import torch` fails: No module named' <<< "$said" || fail "without torch: $said"
      quietly "$work/bare/bin/python3" -m pip install --quiet "scikit-build-core>=0.8"
      said=$(cd "$SOURCE" && "$work/bare/bin/python3" -m pip wheel --no-build-isolation --no-deps --wheel-dir "$work/none" . 2>&1) &&
        fail "expected no wheel to be built without torch"
      grep -q 'cannot import torch' <<< "$said" || fail "built without torch: $said"
      ;;
    checkout)
      mkdir -p "$BUILD"
      quietly "${pip[@]}" install --quiet --no-build-isolation --no-deps --config-settings=build-dir="$BUILD" .
      use tools
      ;;
    *) fail "expected sdist or checkout, got $what" ;;
  esac
  echo "ok      $what: $((SECONDS - started)) s"
done
ls -l "$folder/dist"
