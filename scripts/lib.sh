# shellcheck shell=bash
# What the scripts share: where things are, how they speak, how they check, what a skip is. Source it, do not run it.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
# Test tools with pinned versions live here, away from the system.
export WEIR_TOOLS=${WEIR_TOOLS:-$TARGET/tools}
export PATH="$WEIR_TOOLS/bin:$PATH:/usr/sbin:/sbin"

# In CI everything is meant to be there, so a skip is a failure.
if [ "${CI:-}" = true ]; then
    export REQUIRE_ALL=${REQUIRE_ALL:-1} REQUIRE_NETNS=${REQUIRE_NETNS:-1}
fi

say() { printf '==> %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
# version: that of the workspace.
version() { sed -n 's/^version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml" | head -n 1; }
have() { command -v "$1" >/dev/null 2>&1; }

checks_failed=0

# check NAME COMMAND...: runs the command silently; on failure shows all that it said.
check() {
    local name=$1 output
    shift
    if output=$("$@" 2>&1); then
        printf 'ok: %s\n' "$name"
    else
        printf 'FAILED: %s: %s\n%s\n' "$name" "$*" "$output"
        checks_failed=$((checks_failed + 1))
    fi
}

# skip REASON: one line that the summary counts; a failure where nothing may be skipped.
skip() {
    if [ "${REQUIRE_ALL:-}" = 1 ]; then
        printf 'FAILED: %s (REQUIRE_ALL=1 turns a skip into a failure)\n' "$*"
        checks_failed=$((checks_failed + 1))
    else
        printf 'skipped: %s\n' "$*"
    fi
}

# finish: the exit code of a script that made checks.
finish() { [ "$checks_failed" -eq 0 ]; }

# wait_until SECONDS COMMAND...: runs the command until it succeeds or the time is up.
wait_until() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$deadline" ] || { printf 'timed out waiting for: %s\n' "$*" >&2; return 1; }
        sleep 0.05
    done
}

# free_port: a port on loopback that nothing listened on a moment ago, below the range of outgoing connections.
free_port() {
    local port
    for _ in {1..50}; do
        port=$((20000 + RANDOM % 10000))
        ss -Hlnut "sport = :$port" 2>/dev/null | grep -q . || { printf '%d\n' "$port"; return; }
    done
    return 1
}
