#!/usr/bin/env bash
# Builds the image, looks inside, and runs its binary where nothing else is.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"

for tool in buildah skopeo umoci; do
    have "$tool" || { skip "image: $tool is not installed"; finish; exit; }
done
rustup target list --installed 2>/dev/null | grep -q musl || { skip "image: no musl target for this toolchain"; finish; exit; }
[ "$(id -u)" -eq 0 ] || { skip "image: assembling and chroot need root"; finish; exit; }

# Weir with every kind of sink: librdkafka, OpenSSL and the other clients are two thirds of it.
LARGEST_IMAGE_MIB=48
archive=$(scripts/build-image.sh)
version=$(version)
work=$(mktemp -d)
cleanup() {
    [ ! -f "$work/daemon.pid" ] || kill "$(cat "$work/daemon.pid")" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

skopeo inspect --config "oci-archive:$archive" >"$work/config.json"
skopeo copy --quiet "oci-archive:$archive" "oci:$work/oci:weir"
umoci unpack --image "$work/oci:weir" "$work/bundle" >/dev/null 2>&1
rootfs="$work/bundle/rootfs"

# config_is EXPRESSION: a Python expression over the image's config holds.
config_is() { python3 -c 'import json, sys; c = json.load(open(sys.argv[1]))["config"]; print(c); sys.exit(not eval(sys.argv[2]))' "$work/config.json" "$1"; }
holds_only_the_binary() { local files; files=$(cd "$rootfs" && find . -mindepth 1 | sort); printf '%s\n' "$files"; [ "$files" = ./weir ]; }
is_static() { ! ldd "$rootfs/weir" 2>&1 | grep -q '=>'; }
is_small() { local bytes; bytes=$(stat -c %s "$archive"); printf '%s bytes\n' "$bytes"; [ "$bytes" -le $((LARGEST_IMAGE_MIB * 1024 * 1024)) ]; }
# In a root folder with nothing but itself, as the image's user and so with no capability: what a container gives it.
inside=(setpriv --no-new-privs chroot --userspec=65532:65532 "$rootfs" /weir)
has_no_lab() {
    local status=0
    "${inside[@]}" lab udp-vs-tcp --quick 2>"$work/lab.err" || status=$?
    cat "$work/lab.err"
    [ "$status" -eq 69 ] && grep -q "this build of weir has no lab" "$work/lab.err"
}
says_its_version() { [[ "$("${inside[@]}" --version)" = "weir $version ("*")" ]]; }
# health_check: the command of the Dockerfile. The format of the archive has no place for it, so the image's configuration does not
# show it.
health_check() { sed -n 's/^HEALTHCHECK .* CMD \["\(.*\)"\]$/\1/p' Dockerfile | sed 's/", "/ /g'; }
is_healthy() { "${inside[@]}" "${health[@]:1}" --admin "127.0.0.1:$1"; }
is_unhealthy() { local status=0; is_healthy "$1" >"$work/health" || status=$?; cat "$work/health"; [ "$status" -eq 1 ] && grep -q "no sink works" "$work/health"; }
relays() {
    local listen admin status=0
    read -ra health < <(health_check)
    [ "${health[0]}" = /weir ] || { printf 'the Dockerfile checks with: %s\n' "${health[*]}"; return 1; }
    listen=$(free_port) admin=$(free_port)
    mkdir -p "$rootfs/etc/weir" "$rootfs/var/lib/weir"
    chown 65532:65532 "$rootfs/var/lib/weir"
    cat >"$rootfs/etc/weir/weir.toml" <<TOML
[admin]
listen = "127.0.0.1:$admin"
[[listener]]
name = "in"
listen = "udp://127.0.0.1:$listen"
[[listener.target]]
name = "out"
to = "file:/var/lib/weir/out.log"
[[sink]]
name = "dead"
from = ["in"]
to = "tcp://127.0.0.1:1"
TOML
    "${inside[@]}" run -c /etc/weir/weir.toml >"$work/daemon.log" 2>&1 &
    local daemon=$!
    echo "$daemon" >"$work/daemon.pid"
    # The image's own health check.
    wait_until 10 is_healthy "$admin" || { cat "$work/daemon.log"; return 1; }
    echo "hello from outside" >"/dev/udp/127.0.0.1/$listen"
    wait_until 10 grep -qx "hello from outside" "$rootfs/var/lib/weir/out.log" || { cat "$work/daemon.log"; return 1; }
    # The only sink has nobody to connect to.
    wait_until 10 is_unhealthy "$admin" || { cat "$work/health" "$work/daemon.log"; return 1; }
    kill -TERM "$daemon"
    wait "$daemon" || status=$?
    rm "$work/daemon.pid"
    cat "$work/daemon.log"
    # What the sink could not deliver was left behind.
    [ "$status" -eq 75 ]
}
is_the_same_again() {
    local before after
    before=$(skopeo inspect --format '{{.Digest}}' "oci-archive:$archive")
    scripts/build-image.sh
    after=$(skopeo inspect --format '{{.Digest}}' "oci-archive:$archive")
    printf '%s %s\n' "$before" "$after"
    [ "$before" = "$after" ]
}

check "image: entry point" config_is 'c["Entrypoint"] == ["/weir"] and c["Cmd"] == ["run", "-c", "/etc/weir/weir.toml"]'
check "image: user is not root" config_is 'c["User"] == "65532:65532"'
check "image: labels" config_is 'c["Labels"]["org.opencontainers.image.version"] == "'"$version"'"'
check "image: one file, no shell" holds_only_the_binary
check "image: static binary" is_static
check "image: at most $LARGEST_IMAGE_MIB MiB" is_small
check "image: the binary runs" says_its_version
check "image: the lab is left out, and says so" has_no_lab
check "image: the binary relays, answers its health check and drains" relays
check "image: a second build is the same image" is_the_same_again
finish
