#!/usr/bin/env bash
# run.sh [OPTION...]: builds what is compared and compares it; see bench/README.md. Options go to the bench, BENCH_ARGS too:
#
#   make bench                          everything, about 40 minutes
#   make bench BENCH_ARGS=--quick       the main cases, under 3 minutes
#   make bench BENCH_ARGS=fleet         what the records of many hosts take, 6 minutes
#   make bench BENCH_ARGS=sockets       decoding, encoding, and polls of the socket collector, 4 minutes
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"
cd "$ROOT"

scripts/install-tools.sh build
for tool in socat taskset git; do
    have "$tool" || say "no $tool here: $(case $tool in
        socat) echo 'left out of the comparison, and the stuck file with it (apt-get install socat)' ;;
        taskset) echo 'needed to bind load and relays to processors (apt-get install util-linux)' ;;
        git) echo 'the commit will not be named' ;;
    esac)"
done

cargo build --release --package weir --package bench
# The command is published with the figures: name the binary as seen from here where it lies here.
weir=$(realpath --relative-to=. "$TARGET")/release/weir
read -ra args <<<"${BENCH_ARGS:-}"
args+=("$@")

# The socket collector: its decoders and encoders alone, then whole polls.
sockets() {
    cargo bench --package wire --package record -- --quiet
    "$TARGET/release/bench" sockets --weir "$weir" "$@"
}

# What the records of many hosts take, with a broker and ClickHouse's engine.
fleet() {
    scripts/install-tools.sh servers
    "$TARGET/release/bench" fleet --weir "$weir" --tools "$(realpath --relative-to=. "$WEIR_TOOLS")/bin" "$@"
}

case ${args[0]:-} in
    fleet) fleet "${args[@]:1}" ;;
    sockets) sockets "${args[@]:1}" ;;
    '') "$TARGET/release/bench" --weir "$weir"; sockets ;;
    *) "$TARGET/release/bench" --weir "$weir" "${args[@]}" ;;
esac
