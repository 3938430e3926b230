#!/usr/bin/env bash
# How long a newcomer waits for the first true figure, from README's first command on, against what README promises.
#
#   newcomer.sh package ARCHIVE   unpacks it, starts a relay, sends a datagram, and asks the ledger for it: 10 s
#   newcomer.sh clone             the same from a clean clone with nothing built, as `make run` does it: 3 minutes. The crates that it
#                                 needs are fetched before, and two processors have nothing else to do.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

PACKAGE_SECONDS_MAX=10
CLONE_SECONDS_MAX=180

work=$(mktemp -d)
daemon=''
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

from_clone() {
    local began
    git clone --quiet "$ROOT" "$work/clone"
    (cd "$work/clone" && cargo fetch --locked --quiet)
    began=$(now_ms)
    (cd "$work/clone" && env --unset=CARGO_TARGET_DIR make quick)
    within "$CLONE_SECONDS_MAX" "the clone's build" "$began"
    first_figure "$work/clone/target/quick/weir"
    within "$CLONE_SECONDS_MAX" "the clone's first figure" "$began"
}

case ${1:-} in
    package) from_package "$2" ;;
    clone) from_clone ;;
    *) die "usage: newcomer.sh package ARCHIVE | clone" ;;
esac
