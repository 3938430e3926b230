#!/usr/bin/env bash
# demo.sh WEIR: a generator, a relay and two verifying receivers for 10 s on loopback, then the joined report: what
# was sent, what each receiver got, and where in the relay anything stayed.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

weir=$1
rate=${RATE:-20k} duration=${DURATION:-10s} size=${SIZE:-200}
relay_port=$(free_port) first=$(free_port) second=$(free_port) admin=$(free_port)
work=$(mktemp -d)
relay='' verify=''
# shellcheck disable=SC2317  # The trap calls it.
cleanup() {
    [ -z "$relay" ] || kill "$relay" 2>/dev/null || true
    [ -z "$verify" ] || kill "$verify" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

say "the relay: 127.0.0.1:$relay_port to 127.0.0.1:$first and 127.0.0.1:$second"
"$weir" relay --admin "127.0.0.1:$admin" --listen "127.0.0.1:$relay_port" --to "127.0.0.1:$first" \
    --to "127.0.0.1:$second" >"$work/ledger" 2>"$work/relay.log" &
relay=$!
wait_until 10 "$weir" ledger --admin "127.0.0.1:$admin" || { cat "$work/relay.log" >&2; exit 1; }

say "two receivers that check every datagram, and ask the relay for its ledger"
"$weir" verify --listen "127.0.0.1:$first" --listen "127.0.0.1:$second" --until-done \
    --progress off --admin "127.0.0.1:$admin" >"$work/report" 2> >(tee "$work/verify.log" >&2) &
verify=$!
wait_until 10 grep -q "^listening on .*:$second" "$work/verify.log"

say "the generator: $rate datagrams a second of $size bytes for $duration"
"$weir" gen --to "127.0.0.1:$relay_port" --rate "$rate" --duration "$duration" --size "$size"

status=0
wait "$verify" || status=$?
verify=''
say "what the receivers say"
cat "$work/report"

say "what the relay says"
kill -TERM "$relay"
wait "$relay" || status=$?
relay=''
cat "$work/ledger" "$work/relay.log"
exit "$status"
