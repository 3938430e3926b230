#!/usr/bin/env bash
# run.sh [OPTION...]: builds what is compared and compares it; see bench/README.md. Options go to the bench, BENCH_ARGS too:
#
#   make bench                          everything, about 40 minutes
#   make bench BENCH_ARGS=--quick       the main cases, under 3 minutes
#   make bench BENCH_ARGS=fleet         what the records of many hosts take, 6 minutes
#   make bench BENCH_ARGS=quic          the repaired link and QUIC over a path that loses packets, 2 minutes
#   make bench BENCH_ARGS=sockets       decoding, encoding, and polls of the socket collector, 4 minutes
#   make bench BENCH_ARGS=flows         decoding sFlow beside other decoders, and the highest rate of weir flows, 2 minutes
#   make bench BENCH_ARGS=view          what the page costs browser and daemon, with 10,000 sockets, 5 minutes
#   make bench BENCH_ARGS=view-long     whether both stay as they are with 100,000 sockets, half an hour; as root
#   make bench BENCH_ARGS=memory        what memory a daemon keeps with 60,000 sockets and a history, 20 minutes; as root
#   make bench BENCH_ARGS=group         one flow of a million datagrams over several sockets, five times each way, 10 minutes
#   make bench BENCH_ARGS=sinks         each kind of sink beside other clients, a million rows and a minute's outage, 45 minutes
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

# The repaired link and QUIC over a path that loses packets. QUIC is in no other build.
quic() {
    cargo test --release --package bench --features quic quic::
    cargo run --release --package bench --features quic -- quic "$@"
}

# What the records of many hosts take, with a broker and ClickHouse's engine.
fleet() {
    scripts/install-tools.sh servers
    "$TARGET/release/bench" fleet --weir "$weir" --tools "$(realpath --relative-to=. "$WEIR_TOOLS")/bin" "$@"
}

# Each kind of sink beside other clients of the same server; a million rows through each and read back; a minute without the server; and
# encoding without any.
sinks() {
    scripts/install-tools.sh servers
    have bench_writer || (cd scripts/servers/nsq && go build -o "$WEIR_TOOLS/bin/" github.com/nsqio/nsq/bench/bench_writer)
    have nats || GOBIN="$WEIR_TOOLS/bin" go install github.com/nats-io/natscli/nats@v0.5.1
    # In memory, so that no disk decides.
    WEIR_TEST_SERVERS=$(mktemp -d /dev/shm/weir-bench.XXXXXX)
    export WEIR_TEST_SERVERS
    cargo bench --package bench --features sinks --bench sinks -- "$@"

    local kinds=(--package sink --features "kafka,nats,redis,http,parquet,s3,tls")
    WEIR_TEST_ROWS=1000000 cargo test "${kinds[@]}" --test sink -- --test-threads=1 field_by_field every_row s_records_are
    WEIR_TEST_OUTAGE=60 cargo test "${kinds[@]}" --test sink -- --test-threads=1 with_a_spool
    cargo bench "${kinds[@]}"
}

# Decoders of sFlow, the engine as flows become more, and the whole command from socket to flows.
flows() {
    local datagram
    datagram=$(mktemp)
    cargo bench --package bench --bench sflow
    cargo bench --package bench --bench sflow -- "$datagram"
    if have go; then (cd bench/flows/goflow2 && go run . "$datagram"); fi
    rm "$datagram"
    bench/flows/rates.py "$weir" 300k,400k,450k,0 5 1
}

# What the page costs: the browser, and the daemon for each who looks.
view() {
    scripts/install-tools.sh view
    CHROMIUM=$(command -v chromium) weir-node bench/view/run.cjs "$weir" "$@"
}

# Whether browser and daemon stay as they are, with sockets in a network namespace of their own.
view_long() {
    scripts/install-tools.sh view
    CHROMIUM=$(command -v chromium) unshare --net sh -c 'ip link set lo up; exec weir-node bench/view/long.cjs "$@"' sh "$weir" "$@"
}

# What memory a daemon keeps, with sockets in a network namespace of its own.
memory() {
    scripts/install-tools.sh view
    unshare --net sh -c 'ip link set lo up; exec weir-node bench/view/memory.cjs "$@"' sh "$weir" "$@"
}

# What `weir top` costs, page by page.
top() {
    bench/top/run.py "$weir" "$@"
}

# One flow over several sockets of one address: even, in order, nothing lost; with a thread that is stopped, and while sockets come and go.
group() {
    local run
    for run in 1 2 3 4 5; do
        say "run $run, load average $(cut -d' ' -f1-3 /proc/loadavg)"
        WEIR_TEST_DATAGRAMS=1000000 cargo test --quiet --package relay --test relay -- --test-threads=1 \
            one_flow_over come_and_go so_they_do a_thread_that_is_stopped
        WEIR_TEST_DATAGRAMS=1000000 cargo test --quiet --package weir --test weir -- --test-threads=1 reload::sockets_come_and_go
    done
}

case ${args[0]:-} in
    group) group ;;
    view) view "${args[@]:1}" ;;
    view-long) view_long "${args[@]:1}" ;;
    memory) memory "${args[@]:1}" ;;
    top) top "${args[@]:1}" ;;
    flows) flows ;;
    sinks) sinks "${args[@]:1}" ;;
    quic) quic "${args[@]:1}" ;;
    fleet) fleet "${args[@]:1}" ;;
    sockets) sockets "${args[@]:1}" ;;
    '') "$TARGET/release/bench" --weir "$weir"; sockets; flows; sinks ;;
    *) "$TARGET/release/bench" --weir "$weir" "${args[@]}" ;;
esac
