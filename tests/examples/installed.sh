#!/usr/bin/env bash
# installed.sh BUILD COMPILER: installs what BUILD holds, builds examples/ against it as an outside project, and runs them all.
set -euo pipefail
build=$1
compiler=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }

cmake --install "$build" --prefix "$work/prefix" > /dev/null
cmake -S "$here" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_CXX_FLAGS='-Wall -Wextra -Werror -O0' -DCMAKE_EXPORT_COMPILE_COMMANDS=ON > "$work/configure.log" || { cat "$work/configure.log"; fail "configure"; }
cmake --build "$work/build" -j 2 > "$work/build.log" || { tail -50 "$work/build.log"; fail "build"; }
for leak in Wconversion fsanitize src/epipe grpc fpch-preprocess; do
  ! grep -q -- "$leak" "$work/build/compile_commands.json" || fail "$leak reaches those who use the package"
done
[ "$(find "$work/prefix/include" -type f | wc -l)" = 1 ] || fail "more than one header is installed"
for made in man/man1/epipe.1 man/man1/epipe-serve.1 bash-completion/completions/epipe zsh/vendor-completions/_epipe fish/vendor_completions.d/epipe.fish; do
  [ -s "$work/prefix/share/$made" ] || fail "$made is not installed"
done
bin=$work/build/examples
cd "$work"

"$bin/own_loop" none weights.pt > loop.txt
"$work/build/plain_loop" weights.pt || fail "own_loop differs from a plain loop"
"$bin/own_loop" dct:1 coded.pt > coded.txt
! "$work/build/plain_loop" coded.pt 2> /dev/null || fail "a coded loop changes nothing: nothing was coded"

"$bin/codec" frame.epf > codec.txt
[ "$(wc -l < codec.txt)" = 6 ] || fail "expected a line for each codec"
"$work/prefix/bin/epipe" codec decode frame.epf decoded.npy || fail "epipe codec decode"

any=(train --model mynet --data stripes:256 --cuts 3,6 --place 0,1,0 --chunks 4 --batch 32 --momentum 0.9 --seed 7)
run=("${any[@]}" --epochs 2)
train=("${run[@]}" --loss smoothed)
"$bin/own_model" "${train[@]}" --run-dir alone > alone.txt 2>&1 || { cat alone.txt; fail "train in one process"; }
"$bin/own_model" launch -n 2 -- "${train[@]}" --run-dir ranks > ranks.txt 2>&1 || { cat ranks.txt; fail "train over gloo"; }
"$bin/own_model" serve --insecure --listen 127.0.0.1:0 --state-dir state > serve.txt 2> serve.log &
server=$!
for _ in $(seq 300); do grep -q '^listening on' serve.txt && break; sleep 0.2; done
address=$(sed -n 's/^listening on \([^,]*\).*/\1/p' serve.txt)
"$bin/own_model" "${train[@]}" --connect "$address" --insecure --run-dir served > served.txt 2>&1 || { cat served.txt serve.log; fail "train against a server"; }

# A server that dies in the middle, its sessions with it, and is started again costs nothing but time.
long=("${any[@]}" --epochs 40 --checkpoint-every 9)
"$bin/own_model" "${long[@]}" --run-dir undisturbed > undisturbed.txt 2>&1 || { cat undisturbed.txt; fail "a longer training"; }
"$bin/own_model" "${long[@]}" --connect "$address" --insecure --run-dir killed > killed.txt 2>&1 &
client=$!
for _ in $(seq 600); do [ "$(grep -cs '"kind":"step"' killed/metrics.jsonl || true)" -ge 5 ] 2> /dev/null && break; sleep 0.05; done
sessions=$(cat /proc/"$server"/task/*/children 2> /dev/null || true)
kill -9 "$server" $sessions || true
wait "$server" 2> /dev/null || true
"$bin/own_model" serve --insecure --listen "$address" --state-dir state > serve2.txt 2> serve2.log &
server=$!
wait "$client" || { cat killed.txt serve2.log; fail "train against a server that died"; }
grep -q 'lost after step' killed.txt || { cat killed.txt; fail "the server was killed too late to be missed"; }
cmp undisturbed/model.safetensors killed/model.safetensors || fail "killed has other weights"
for other in ranks served; do cmp alone/model.safetensors $other/model.safetensors || fail "$other has other weights"; done
grep -q 'loss = "smoothed"' alone/config.toml || fail "config.toml does not name the loss"
"$bin/own_model" "${run[@]}" --run-dir plain > plain.txt 2>&1 || { cat plain.txt; fail "train with the usual loss"; }
! cmp -s alone/model.safetensors plain/model.safetensors || fail "--loss changes nothing"

"$work/prefix/bin/epipe" "${train[@]}" --run-dir unknown 2> unknown.txt && fail "epipe trained a model it does not know"
grep -q 'unknown model "mynet"' unknown.txt || { cat unknown.txt; fail "what epipe says of an unknown model"; }
echo "all examples run"
