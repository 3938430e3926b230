#!/usr/bin/env bash
# Every test, step by step, with the time each step took. Steps go on after a failure; the last line sums all up.
#
#   scripts/test.sh            all steps
#   scripts/test.sh loom miri  only these steps; loom+miri runs the two at the same time
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"

FUZZ_SECONDS=${FUZZ_SECONDS:-15}
LOGS=$(mktemp -d)
# Shared servers, each with its log in a folder of its own (crates/testkit/src/servers/shared.rs).
export WEIR_TEST_SERVERS=$TARGET/tmp/servers
trap 'rm -rf "$LOGS"' EXIT
TIMES=() FAILED=()

# step NAME COMMAND...: runs one step, shows and keeps what it prints.
step() {
    local name=$1 start=$SECONDS
    shift
    say "$name"
    # In a shell of its own: a command on the left of || would run without `set -e`.
    set +e
    (set -e; "$@") 2>&1 | tee "$LOGS/$name.log"
    ended "$name" "${PIPESTATUS[0]}" "$((SECONDS - start))"
    set -e
}

# steps_together NAME...: runs steps at the same time, and shows what each printed when all before it have ended; the time of
# each is the time until then. For steps that use one processor most of the time; a test that holds load runs alone.
steps_together() {
    local name pids=() start=$SECONDS status
    say "$* at the same time"
    for name in "$@"; do
        (set -e; "step_$name") >"$LOGS/$name.log" 2>&1 &
        pids+=($!)
    done
    for name in "$@"; do
        status=0
        wait "${pids[0]}" || status=$?
        pids=("${pids[@]:1}")
        cat "$LOGS/$name.log"
        ended "$name" "$status" "$((SECONDS - start))"
    done
}

# keep_servers: the servers that tests start and share end with this script, however it ends, and not with the test executable
# that started them: a server lives as long as a process shares the lock on its lease.
keep_servers() {
    local name folder
    for name in kafka nsqd nats redis clickhouse s3; do
        folder=$WEIR_TEST_SERVERS/$name
        mkdir -p "$folder"
        flock --shared --no-fork "$folder/lease" tail --pid=$$ -f /dev/null >/dev/null 2>&1 &
    done
}

# ended NAME STATUS SECONDS: notes how a step ended.
ended() {
    [ "$2" -eq 0 ] || FAILED+=("$1")
    TIMES+=("$(printf '%5d s  %s%s' "$3" "$1" "$([ "$2" -eq 0 ] || printf '  FAILED')")")
}

# The last test run of a log must have run something: a filter that matches nothing passes otherwise.
ran_something() { grep -Eq '^test result: .* [1-9][0-9]* passed' "$LOGS/$1.log" || { echo "FAILED: $1: no test ran"; return 1; }; }

# With the clients of every kind of sink; the default build has none of those that take long to build.
SINKS=(--features weir/all-sinks)

step_unit() { cargo test --workspace "${SINKS[@]}" --no-fail-fast; }

# What of the program depends on which kinds of sinks are built in, once without them.
step_lean() { cargo test -p config --no-fail-fast; }

# Each measurement once, as a test: that they run, not what they find.
step_benches() {
    cargo test --benches -p wire -p record -p flows | tee "$LOGS/benches.out"
    grep -q '^Success$' "$LOGS/benches.out" && echo "ok: benches run"
}

# Tests of the program that need no privilege anywhere: they are about servers, browsers, documents, screens and figures, and the unit
# step has run them.
WITHOUT_PRIVILEGE=(choices:: choose:: clickhouse_queries:: ddos_pack:: deploy_files:: documents:: examples:: fleet:: flows_ gen_verify
    grpc:: help_command:: layers:: log_format:: metrics_contract:: mistakes:: mitigat monitoring:: prometheus:: real_ said_source::
    screens:: sink_check:: spools:: store_ terminal:: top:: torn_files:: ui_command:: view:: isolation:: questions::)

# The program's tests once more without any capability. What needs a namespace skips here; it ran in the unit step, and the summary
# counts it apart. The same test binaries: building for one package alone would build its dependencies anew with fewer features.
step_unprivileged() {
    [ "$(id -u)" -eq 0 ] || { echo "nothing to drop: the tests above ran without privilege"; return; }
    local binaries binary module filter=() status=0
    mapfile -t binaries < <(cargo test --workspace "${SINKS[@]}" --no-run --message-format=json 2>/dev/null |
        sed -n '/crates\/weir\/Cargo.toml"/ { /"kind":\["test"\]/ s/.*"executable":"\([^"]*\)".*/\1/p }')
    [ "${#binaries[@]}" -gt 0 ] || { echo "FAILED: unprivileged: no test binary"; return 1; }
    for module in "${WITHOUT_PRIVILEGE[@]}"; do filter+=(--skip "$module"); done
    cd crates/weir
    for binary in "${binaries[@]}"; do
        echo "running $(basename "$binary") without capabilities"
        env --unset=REQUIRE_ALL --unset=REQUIRE_NETNS setpriv --no-new-privs \
            --bounding-set=-all --inh-caps=-all --ambient-caps=-all "$binary" "${filter[@]}" || status=1
    done
    return "$status"
}

step_loom() {
    # Every interleaving with at most three preemptions: more take hours, and bugs of such protocols need one or two.
    RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS="${LOOM_MAX_PREEMPTIONS:-3}" CARGO_TARGET_DIR="$TARGET/loom" \
        cargo test -p relay --lib --release loom
    ran_something loom
}

step_miri() {
    cargo +nightly miri --version >/dev/null 2>&1 || { skip "miri: not in a nightly toolchain here"; finish; return; }
    # Fetches crates of the standard library, from a registry that may fail once.
    cargo +nightly miri setup || cargo +nightly miri setup
    CARGO_TARGET_DIR="$TARGET/miri" cargo +nightly miri test -p relay --lib ring
    ran_something miri
}

step_fuzz() {
    [ -d fuzz ] || { skip "fuzz: no targets"; finish; return; }
    cargo +nightly --version >/dev/null 2>&1 || { skip "fuzz: no nightly toolchain here"; finish; return; }
    have cargo-fuzz || { skip "fuzz: cargo-fuzz is not installed; scripts/install-tools.sh fuzz installs it"; finish; return; }
    local name pid pids=() status=0
    cargo_fuzz build || return 1
    # As many at a time as there are processors; each takes as long as the others.
    for name in $(cargo fuzz list); do
        if [ "${#pids[@]}" -ge "$(nproc)" ]; then
            wait "${pids[0]}" || status=1
            pids=("${pids[@]:1}")
        fi
        fuzz_one "$name" &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid" || status=1; done
    return "$status"
}

# Without a sanitizer, which takes long to build: parsers have no unsafe code, SQLite in C would not be covered, and overflows and
# assertions are checked without one.
cargo_fuzz() {
    env --unset=CARGO_TARGET_DIR cargo +nightly fuzz "$1" --sanitizer none --target-dir "$TARGET/fuzz" "${@:2}"
}

# fuzz_one NAME: what a run finds is kept next to the build; seeds from the repository are read, not written.
fuzz_one() {
    local corpus="$TARGET/fuzz-corpus/$1"
    mkdir -p "$corpus" "fuzz/corpus/$1"
    check "fuzz $1 for $FUZZ_SECONDS s" cargo_fuzz run "$1" "$corpus" "fuzz/corpus/$1" -- \
        -max_total_time="$FUZZ_SECONDS" -timeout=10
    finish
}

step_demo() {
    cargo build --workspace "${SINKS[@]}"
    check "demo for 1 s" env DURATION=1s scripts/demo.sh "$TARGET/debug/weir"
    finish
}

# A clean clone is built with nothing there, which takes minutes of two idle processors: only where that is asked for.
step_newcomer() {
    [ "${WEIR_NEWCOMER:-}" = 1 ] || { echo "not asked for: WEIR_NEWCOMER=1 builds a clean clone, and times it"; return; }
    local took is_fast=true
    took=$(scripts/newcomer.sh clone 2>&1 | tail -n 2) || is_fast=false
    check "clone: $took" "$is_fast"
    finish
}

step_scripts() { scripts/test-scripts.sh; }
step_units() { scripts/test-units.sh; }
step_manifests() { scripts/test-manifests.sh; }
step_chart() { scripts/test-chart.sh; }
step_packages() { scripts/test-install.sh && scripts/test-packages.sh; }
step_image() { scripts/test-image.sh; }

# sum_up STEP...: `N passed, N failed, N skipped` over cargo's own results and the lines that the checks print. What was
# skipped for want of capabilities is none of the N where the unit step ran the same tests with them, but a line of its own.
sum_up() {
    local ran_before=0
    case " $* " in *" unit "*) ran_before=1 ;; esac
    awk -v failed_steps="${#FAILED[@]}" -v ran_before="$ran_before" '
        FNR == 1 {
            harness = FILENAME ~ /(unit|lean|unprivileged)\.log$/
            again = ran_before && FILENAME ~ /unprivileged\.log$/
        }
        /^test result: / { passed += $4; failed += $6; skipped += $8 }
        /^ok: / { passed++ }
        /^FAILED: / { failed++ }
        # A test that lacks something says so and returns; the harness counts it as passed.
        /skipped: / { if (harness) passed--; if (again) apart++; else skipped++ }
        END {
            if (failed < failed_steps) failed = failed_steps
            if (apart) printf "without capabilities %d more skipped: the unit step is the one that runs them\n", apart
            printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
        }' "$LOGS"/*.log
}

"$ROOT/scripts/install-tools.sh" "$([ "${REQUIRE_ALL:-}" = 1 ] && echo fuzz || echo test)"
keep_servers
[ "$#" -gt 0 ] || set -- scripts unit lean benches demo unprivileged units manifests chart image+packages+loom+miri fuzz newcomer
for name in "$@"; do
    case $name in
        *+*) IFS=+ read -ra together <<<"$name"; steps_together "${together[@]}" ;;
        *) step "$name" "step_$name" ;;
    esac
done

say "time per step"
printf '%s\n' "${TIMES[@]}" >&2
[ "${#FAILED[@]}" -eq 0 ] || say "failed: ${FAILED[*]}"
sum_up "$@"
[ "${#FAILED[@]}" -eq 0 ]
