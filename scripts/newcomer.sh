#!/usr/bin/env bash
# How long a newcomer waits for the first true figure, from README's first command on, against what README promises.
#
#   newcomer.sh package ARCHIVE   unpacks it, starts a relay, sends a datagram, and asks the ledger for it: 10 s
#   newcomer.sh clone             the same from a clean clone with nothing built, as `make run` does it: 3 minutes on processors that
#                                 have nothing else to do. The crates that it needs are fetched before. On a busy machine the
#                                 clock says little, so the processor time of the build is held to it, and both are shown.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

PACKAGE_SECONDS_MAX=10
CLONE_SECONDS_MAX=180

work=$(mktemp -d)
daemon='' children_ms=0
# shellcheck disable=SC2317  # The trap calls it.
cleanup() {
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

now_ms() { date +%s%3N; }

# shows_a_datagram WEIR ADMIN: the ledger has one.
shows_a_datagram() { "$1" ledger --admin "$2" | grep -Eq '^  receive +in +[1-9]'; }

# sent_and_shown WEIR ADMIN PORT: sends one, and looks.
sent_and_shown() {
    echo 'hello weir' >"/dev/udp/127.0.0.1/$3"
    shows_a_datagram "$1" "$2"
}

# first_figure WEIR: starts the daemon, sends to it, and waits until its ledger shows it.
first_figure() {
    local port admin
    port=$(free_port) admin=127.0.0.1:$(free_port)
    (cd "$work" && exec "$1" relay --listen "127.0.0.1:$port" --to file:copy.log --admin "$admin" --progress off) \
        >"$work/relay.log" 2>&1 &
    daemon=$!
    wait_until 60 sent_and_shown "$1" "$admin" "$port" || { cat "$work/relay.log" >&2; exit 1; }
}

# within SECONDS_MAX WHAT FROM_MS: the verdict.
within() {
    local took_ms=$(($(now_ms) - $3))
    printf '%s: %d.%03d s of %d s\n' "$2" $((took_ms / 1000)) $((took_ms % 1000)) "$1"
    [ "$took_ms" -le $(($1 * 1000)) ]
}

from_package() {
    local began
    began=$(now_ms)
    tar -xzf "$1" -C "$work"
    first_figure "$(echo "$work"/weir-*/bin/weir)"
    within "$PACKAGE_SECONDS_MAX" "the package's first figure" "$began"
}

# note_children: sets `children_ms` to the processor time of the commands that have ended so far. No subshell may ask: it has none.
note_children() {
    times >"$work/times"
    children_ms=$(awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, part, /[ms]/); all += part[1] * 60 + part[2] } print int(all * 1000) }' \
        "$work/times")
}

# idle_ms WALL_MS BUSY_MS: what the build takes where nothing else runs: the clock, or what the processors spent on it if that is less.
idle_ms() {
    local shared=$(($2 / $(nproc)))
    echo $(($1 < shared ? $1 : shared))
}

from_clone() {
    local began busy wall
    git clone --quiet "$ROOT" "$work/clone"
    (cd "$work/clone" && cargo fetch --locked --quiet)
    note_children
    busy=$children_ms began=$(now_ms)
    (cd "$work/clone" && env --unset=CARGO_TARGET_DIR make quick)
    note_children
    wall=$(($(now_ms) - began)) busy=$((children_ms - busy))
    printf "the clone's build: %d s by the clock, %d s of processor time\n" $((wall / 1000)) $((busy / 1000))

    began=$(now_ms)
    first_figure "$work/clone/target/quick/weir"
    within "$CLONE_SECONDS_MAX" "the clone's first figure" $((began - $(idle_ms "$wall" "$busy")))
}

case ${1:-} in
    package) from_package "$2" ;;
    clone) from_clone ;;
    *) die "usage: newcomer.sh package ARCHIVE | clone" ;;
esac
