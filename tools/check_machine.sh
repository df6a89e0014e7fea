#!/usr/bin/env bash
# check_machine.sh [FOLDER_OF_DEBS]: docs/operate.md on a bare Debian 12 that has just been installed, with a systemd of its own. As root; it
# takes debootstrap and systemd-nspawn (Debian: debootstrap systemd-container) and some 4 GB below build/machine.
#
# Packages by apt, certificates, a named token, the unit started, a client that trains, metrics scraped, a certificate renewed, the server
# killed and started again by systemd, an upgrade under the client, which ends with the weights of a run in one process; then all of it
# removed. Then the packages for programs: examples/ and a program of ten lines compiled and run, the Python module imported and used. The machine has a network of its own with loopback alone; only apt is outside. Its cgroups are Debian 12's own hierarchy; with
# the one before it systemd in a container learns only after TimeoutStopSec that a killed server's processes are gone.
set -euo pipefail
cd "$(dirname "$0")/.."
debs=$(realpath "${1:-build/deb}")
base=$PWD/build/machine/base
root=$PWD/build/machine/root
log=$PWD/build/machine/boot.log
mkdir -p build/machine
failed=0

say() { echo "== $*"; }
check() {  # check WHAT COMMAND...
  local what=$1
  shift
  if "$@" > build/machine/said 2>&1; then echo "ok      $what"; else echo "WRONG   $what"; sed 's/^/        /' build/machine/said | tail -15; failed=1; fi
}
inside() { nsenter -t "$leader" -a -- "$@"; }
with_network() { nsenter -t "$leader" -m -u -i -p -- env DEBIAN_FRONTEND=noninteractive "$@"; }
until_true() {  # until_true SECONDS COMMAND...
  local end=$((SECONDS + $1))
  shift
  until "$@" > /dev/null 2>&1; do
    if [ $SECONDS -ge $end ]; then echo "not within its time: $*"; return 1; fi
    sleep 0.5
  done
}

[ -d "$base" ] || debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,ca-certificates bookworm "$base.part" http://deb.debian.org/debian \
  > build/machine/debootstrap.log
[ -d "$base" ] || mv "$base.part" "$base"
rm -rf "$root"
cp -a "$base" "$root"
mkdir -p build/machine/archives  # what apt has fetched before
cp build/machine/archives/*.deb "$root/var/cache/apt/archives/" 2> /dev/null || true
cp "$debs"/epipe_*.deb "$root/var/tmp/epipe.deb"
repacked=$(mktemp -d)
dpkg-deb -R "$debs"/epipe_*.deb "$repacked/new"
sed -i 's/^Version: \(.*\)$/Version: \1+1/' "$repacked/new/DEBIAN/control"
dpkg-deb --root-owner-group -b "$repacked/new" "$root/var/tmp/epipe-new.deb" > /dev/null
rm -rf "$repacked"

say "a bare Debian $(cat "$root/etc/debian_version") boots"
unshare -m bash -c "mount --make-rprivate / && SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 \
  exec systemd-nspawn --boot --register=no --keep-unit --private-network --console=pipe -D '$root'" > "$log" 2>&1 < /dev/null &
machine=$!
trap 'kill $machine 2> /dev/null; wait $machine 2> /dev/null || true' EXIT
until_true 60 pgrep -P "$machine"
leader=$(pgrep -P "$machine" | head -1)
until_true 120 inside systemctl is-system-running
check "systemd runs: $(inside systemctl --version | head -1)" inside systemctl is-system-running

say "packages"
check "apt-get update" with_network apt-get update
check "apt-get install ./epipe.deb" with_network apt-get -o APT::Keep-Downloaded-Packages=true install -y /var/tmp/epipe.deb
cp "$root"/var/cache/apt/archives/*.deb build/machine/archives/
check "a manual page and completion" inside test -e /usr/share/man/man1/epipe-serve.1.gz -a -e /usr/share/bash-completion/completions/epipe
check "the unit does not start before there is a certificate" inside sh -c 'systemctl start epipe; ! systemctl is-active epipe'

say "certificates, a token, a check-up, the unit"
check "epipe serve --init-tls" inside runuser -u epipe -- epipe serve --init-tls /var/lib/epipe/tls --name localhost
check "a named token" inside sh -c 'runuser -u epipe -- epipe serve --tokens /var/lib/epipe/tokens --add-token ann > /root/ann.token'
inside sed -i 's|^# tokens|tokens|' /etc/epipe/serve.toml
check "epipe doctor" inside epipe doctor --tls /var/lib/epipe/tls --state-dir /var/lib/epipe
check "systemctl enable --now epipe" inside systemctl enable --now epipe
listening() { inside sh -c 'journalctl -u epipe | grep -q "listening on"'; }
check "it listens" until_true 60 listening
check "its own user" inside sh -c '[ "$(ps -o user= -p "$(systemctl show -P MainPID epipe)" 2> /dev/null || stat -c %U /proc/$(systemctl show -P MainPID epipe))" = epipe ]'
check "epipe serve status" inside epipe serve status --state-dir /var/lib/epipe/sessions
inside systemctl show epipe -p MemoryMax -p LimitNOFILE -p NoNewPrivileges -p ProtectSystem | sed 's/^/        /'

say "a client trains"
run="--model cnn --chunks 2 --batch 32 --seed 3 --codec dct:1 --epochs 50 --max-steps 700 --threads 1"
inside sh -c "cd /root && epipe train --place 0,1,0 --run-dir alone $run" > /dev/null 2>&1
inside sh -c "cd /root && exec epipe train --connect 127.0.0.1:7000 --ca /var/lib/epipe/tls/ca.pem --token-file ann.token --run-dir run \
  --checkpoint-every 10 --reconnect 300 $run" > build/machine/client.log 2>&1 &
client=$!
scraped() { inside curl -sf http://127.0.0.1:9100/metrics; }
steps() { scraped | awk '$1 == "epipe_session_steps_total" {print $2}'; }
more_steps() { local now; now=$(steps); [ "${now:-0}" -gt "${1:-0}" ]; }
client_steps() { inside sh -c 'grep -c kind...step /root/run/metrics.jsonl' 2> /dev/null || true; }
goes_on() { [ "$(client_steps)" -gt "${1:-0}" ]; }
check "metrics are scraped and grow" until_true 90 more_steps 20
check "one session, ann's" inside sh -c 'epipe serve status --json --state-dir /var/lib/epipe/sessions | grep -q "\"ann\""'

say "a certificate is renewed under it"
cat > "$root/root/renew.sh" <<'RENEW'
set -e
cd /root
openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost -keyout new.key -out new.csr 2> /dev/null
printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n' > ext
openssl x509 -req -in new.csr -CA /var/lib/epipe/tls/ca.pem -CAkey /var/lib/epipe/tls/ca.key -CAcreateserial -days 90 -extfile ext -out new.pem 2> /dev/null
install -o epipe -g epipe -m 600 new.pem /var/lib/epipe/tls/server.pem
install -o epipe -g epipe -m 600 new.key /var/lib/epipe/tls/server.key
systemctl reload epipe
RENEW
expiry() { scraped | awk '$1 == "epipe_certificate_expiry_timestamp_seconds" {print $2}'; }
before=$(expiry)
check "openssl, systemctl reload" inside sh /root/renew.sh
changed() { [ "$(expiry)" != "$before" ]; }
check "the new one is shown" until_true 30 changed
check "the log says so" inside sh -c 'journalctl -u epipe | grep -q renewed'
at=$(client_steps)
check "the client goes on" until_true 60 goes_on "$at"

say "the server is killed"
inside sh -c 'kill -9 $(systemctl show -P MainPID epipe)'
restarted() { [ "$(inside systemctl show -P NRestarts epipe)" -ge 1 ] && inside systemctl is-active epipe; }
check "systemd starts it again" until_true 30 restarted
at=$(client_steps)
check "the client goes on" until_true 90 goes_on "$at"

say "an upgrade under the client"
check "epipe serve drain --seconds 0 --wait" inside epipe serve drain --seconds 0 --wait --state-dir /var/lib/epipe/sessions
inactive() { [ "$(inside systemctl is-active epipe)" = inactive ]; }
check "the unit has ended, and is not started again" until_true 30 inactive
check "apt-get install ./epipe-new.deb" with_network apt-get install -y /var/tmp/epipe-new.deb
inside dpkg-query -W -f '        epipe ${Version}\n' epipe
check "systemctl start epipe" inside systemctl start epipe
at=$(client_steps)
check "the client goes on" until_true 90 goes_on "$at"
if wait $client; then ended=0; else ended=$?; fi
check "the client ends well" test "$ended" = 0
check "with the weights of a run in one process" inside cmp /root/run/model.safetensors /root/alone/model.safetensors
sed 's/^/        /' build/machine/client.log | tail -4

say "the end"
check "systemctl stop epipe" inside systemctl stop epipe
check "it ended by itself" inside sh -c '[ "$(systemctl show -P Result epipe)" = success ]'
check "the audit has the session" inside grep -q '"who":"ann"' /var/log/epipe/audit.jsonl
inside journalctl -u epipe --no-pager > build/machine/journal.log
check "apt-get purge epipe" with_network apt-get purge -y epipe
check "nothing of it is left" inside sh -c '! test -e /var/lib/epipe && ! test -e /var/log/epipe && ! test -e /etc/epipe && ! id epipe'

say "programs with the library"
mkdir "$root/var/tmp/debs" "$root/root/ten"
cp "$debs"/{epipe,libepipe,libepipe-dev,python3-epipe}_*.deb "$root/var/tmp/debs/"
cp -r examples "$root/root/examples"
check "apt-get install ./libepipe.deb ./libepipe-dev.deb, a compiler" with_network sh -c 'apt-get -o APT::Keep-Downloaded-Packages=true install -y \
  --no-install-recommends /var/tmp/debs/libepipe_*.deb /var/tmp/debs/libepipe-dev_*.deb g++ cmake make'
cat > "$root/root/ten/ten.cpp" <<'TEN'
#include <epipe/epipe.h>
#include <torch/torch.h>

int main() {
  torch::manual_seed(1);
  const auto x = torch::randn({4, 8, 16, 16});
  const auto frame = epipe::Codec("ec:4").encode(x);
  const auto y = epipe::decode(frame);
  return y.sizes() == x.sizes() && (x - y).square().sum().item<double>() < 0.05 * x.square().sum().item<double>() ? 0 : 1;
}
TEN
check "a program of ten lines, with libepipe.so" inside sh -c 'cd /root/ten && g++ -std=c++20 -I/usr/include/torch/csrc/api/include ten.cpp -o ten \
  -lepipe -ltorch -ltorch_cpu -lc10 && ldd ten | grep -q libepipe.so && ./ten'
check "examples/ by find_package(epipe)" inside sh -c 'cd /root && cmake -S examples -B built > configure.log 2>&1 || { tail -20 configure.log; exit 1; }
  cmake --build built -j 2 2>&1 | tail -20; test -x built/own_model'
check "examples/codec" inside sh -c 'cd /root && built/codec frame && [ -s frame ]'
check "examples/own_loop" inside sh -c 'cd /root && built/own_loop dct:1 weights.pt'
check "examples/own_model" inside sh -c 'cd /root && built/own_model train --model mynet --data stripes:256 --cuts 3,6 --place 0,1,0 --chunks 4 --batch 32 --epochs 2 --run-dir own'

say "the Python module"
check "apt-get install ./epipe.deb ./python3-epipe.deb" with_network sh -c 'apt-get -o APT::Keep-Downloaded-Packages=true install -y \
  --no-install-recommends /var/tmp/debs/epipe_*.deb /var/tmp/debs/python3-epipe_*.deb'
cp "$root"/var/cache/apt/archives/*.deb build/machine/archives/
check "import epipe, encode and decode" inside python3 -c '
import epipe, torch
x = torch.randn(4, 8, 16, 16)
for spec, most in (("none", 0), ("ec:4", 0.05), ("dct:2", 0.3)):
    frame = epipe.Codec(spec).encode(x)
    y = epipe.decode(frame)
    error = ((x - y) ** 2).sum() / (x ** 2).sum()
    assert y.shape == x.shape and error <= most, (spec, error)
    print(epipe.__version__, spec, len(frame), "bytes, relative error", float(error))'
check "the frame of examples/codec is read from Python" inside python3 -c '
import epipe
assert epipe.decode(open("/root/frame", "rb").read()).shape == (8, 32, 32, 32)'
check "examples/python/cut_in_a_script.py" inside python3 /root/examples/python/cut_in_a_script.py
check "apt-get purge" with_network apt-get purge -y epipe libepipe libepipe-dev python3-epipe
[ $failed = 0 ] && say "the machine is as docs/operate.md says"
exit $failed
