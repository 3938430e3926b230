#!/usr/bin/env bash
# The systemd units: they parse without a warning, the sandbox scores well, and their times and names fit the config.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT/deploy/systemd"

# systemd-analyze counts from 0 (shut in) to 10 (everything allowed).
HIGHEST_EXPOSURE=3.0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# setting FILE KEY: the value of KEY in a unit or a TOML file.
setting() { sed -n "s/^$2 *= *\"\{0,1\}\([^\"#]*[^\"# ]\).*/\1/p" "$1" | head -n 1; }

# No warning either: a misspelt directive is only a warning.
silent() {
    local output status=0
    output=$("$@" 2>&1) || status=$?
    printf '%s' "$output"
    [ "$status" -eq 0 ] && [ -z "$output" ]
}

score_is_low() {
    local score
    score=$(systemd-analyze security --offline=yes --no-pager "$1" | sed -n 's/.*Overall exposure level[^:]*: \([0-9.]*\).*/\1/p')
    printf 'exposure %s\n' "$score"
    awk -v score="$score" -v limit="$HIGHEST_EXPOSURE" 'BEGIN { exit !(score != "" && score + 0 <= limit + 0) }'
}

# The words of a setting in one order, for comparing.
words() { setting "$1" "$2" | tr ' ' '\n' | sort | tr '\n' ' '; }
same() { [ "$1" = "$2" ] || { printf '%s is not %s\n' "$1" "$2"; return 1; }; }
longer() { [ "${1%s}" -gt "${2%s}" ] || { printf '%s is not longer than %s\n' "$1" "$2"; return 1; }; }

if have systemd-analyze; then
    # The program need not be installed where the test runs.
    for unit in *.service *.socket; do
        sed 's|=/usr/bin/weir |=/bin/true |' "$unit" >"$work/$unit"
    done
    # With the limits that follow from the configuration.
    cp -r ./*.service.d "$work"
    check "units parse" silent systemd-analyze verify --man=no "$work"/*.service "$work"/*.socket
    for unit in *.service; do
        check "exposure of $unit is at most $HIGHEST_EXPOSURE" score_is_low "$work/$unit"
    done
else
    skip "systemd-analyze is not installed"
fi

check "the service outlives its drain" longer "$(setting weir.service TimeoutStopSec)" "$(setting weir.toml drain_grace)"
check "pending datagrams are kept" same "$(setting weir.socket FlushPending)" no
check "the socket has the listener's address" same "udp://$(setting weir.socket ListenDatagram)" "$(sed -n 's/^listen = "\(udp:[^"]*\)".*/\1/p' weir.toml)"
check "the socket has the listener's name" same "$(setting weir.socket FileDescriptorName)" "$(setting weir.toml name)"

helper=weir-namespace-helper.service
check "the collector outlives its drain" longer "$(setting weir-sockets.service TimeoutStopSec)" "$(setting weir-sockets.toml drain_grace)"
check "the collector asks where the helper listens" same "$(setting weir-sockets.toml helper)" "$(setting weir-namespace-helper.socket ListenSequentialPacket)"
check "the collector may connect" same "$(setting weir-namespace-helper.socket SocketGroup)" "$(setting weir-sockets.service Group)"
check "the collector may ask" grep -qE "^ExecStart=.* --allow-user $(setting weir-sockets.service User)\$" "$helper"
check "the collector's user is made" grep -qE "^u $(setting weir-sockets.service User) " weir-sockets.sysusers
check "the collector has no capability" grep -qx 'CapabilityBoundingSet=' weir-sockets.service
check "the helper has what it keeps" same "$(words "$helper" CapabilityBoundingSet)" \
    "$(sed -n 's/^ *(*\(CAP_[A-Z_]*\),.*/\1/p' ../../crates/weir/src/command/namespace_helper.rs | sort -u | tr '\n' ' ')"
check "and no more than that" same "$(setting "$helper" AmbientCapabilities)" "$(setting "$helper" CapabilityBoundingSet)"
check "the helper enters network namespaces only" same "$(setting "$helper" RestrictNamespaces)" net

check "the sysctl file parses" sh -c '! grep -vE "^(#.*|[a-z0-9_.]+ = [0-9]+|)$" 60-weir.conf'
finish
