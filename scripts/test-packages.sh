#!/usr/bin/env bash
# The packages, by installing, running, upgrading and removing them, each in a root folder of its own, and the archive.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=scripts/packages.sh
source "$ROOT/scripts/packages.sh"
cd "$ROOT"

rustup target list --installed 2>/dev/null | grep -q musl || { skip "packages: no musl target for this toolchain"; finish; exit; }
folder=$(scripts/build-packages.sh)
binary=$(scripts/build-static.sh)
work=$(mktemp -d)
cleanup() {
    [ ! -f "$work/relay.pid" ] || kill "$(cat "$work/relay.pid")" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

# What a version after this one would install: another default in a configuration file.
stage "$binary" /usr "$work/tree"
cp -a "$work/tree" "$work/next"
echo "# a later default" | tee -a "$work/next/etc/weir/weir.toml" >>"$work/next/etc/weir/weir-sockets.toml"
mkdir "$work/packages"
EDIT="# the administrator's"

# make_root FOLDER: a root in which maintainer scripts can run: a shell, what makes users, and a systemctl that only notes what is
# asked of it.
make_root() {
    local name program library
    mkdir -p "$1"/{dev,etc,run/systemd/system,tmp,usr/{bin,sbin,lib,lib64},var/lib}
    for name in bin sbin lib lib64; do ln -s "usr/$name" "$1/$name"; done
    for program in /bin/sh "$(command -v systemd-sysusers)"; do
        cp -L "$program" "$1$program"
        for library in $(ldd "$program" | grep -o '/[^ ]*'); do
            mkdir -p "$1${library%/*}"
            cp -Lf "$library" "$1$library"
        done
    done
    # shellcheck disable=SC2016
    printf '#!/bin/sh\necho "$@" >>/run/systemctl\n' >"$1/usr/bin/systemctl"
    chmod 755 "$1/usr/bin/systemctl"
    # A file will do for what scripts throw away.
    touch "$1/dev/null"
    echo "root:x:0:0:root:/root:/bin/sh" >"$1/etc/passwd"
    echo "root:x:0:" >"$1/etc/group"
}
# asked_systemctl ROOT LINE...: these calls, since the last time, and no others.
asked_systemctl() {
    local asked
    asked=$(cat "$1/run/systemctl" 2>/dev/null || true)
    rm -f "$1/run/systemctl"
    printf 'asked: %s\n' "$asked"
    [ "$asked" = "$(printf '%s\n' "${@:2}")" ]
}
declare -A MAKERS=([deb]=dpkg-deb [rpm]=rpmbuild)
RELOAD=daemon-reload
DISABLE="disable --now weir.socket weir.service weir-sockets.service weir-namespace-helper.socket weir-namespace-helper.service"

# holds ROOT: the files of the tree are there, as they are in the tree; those for zsh have a folder for each system.
holds() { diff -r --exclude=zsh "$work/tree" "$1" | grep -v "^Only in $1" | tee "$work/differs"; [ ! -s "$work/differs" ]; }
completes_in_zsh() { [ -s "$1/_weir" ]; }
has_the_user() { grep -q '^weir-sockets:' "$1/etc/passwd"; }
accepts_its_configuration() { chroot "$1" /usr/bin/weir config check /etc/weir/weir.toml; }
relays() {
    local port relay
    port=$(free_port)
    chroot "$1" /usr/bin/weir relay --listen "127.0.0.1:$port" --to file:/tmp/out.log >"$work/relay.log" 2>&1 &
    relay=$!
    echo "$relay" >"$work/relay.pid"
    wait_until 30 listens "$port" || { cat "$work/relay.log"; return 1; }
    echo "hello from a package" >"/dev/udp/127.0.0.1/$port"
    wait_until 30 grep -q "hello from a package" "$1/tmp/out.log" || { cat "$work/relay.log"; return 1; }
    kill -TERM "$relay"
    rm "$work/relay.pid"
    wait "$relay" || { cat "$work/relay.log"; return 1; }
}
listens() { ss -Hlnu "sport = :$1" | grep -q .; }
# An upgrade keeps the file that was edited, puts the new default next to it, and takes the new default of the other.
upgraded_as_it_should() {
    tail -n 1 "$1/etc/weir/weir.toml" | grep -qx "$EDIT" && cmp "$work/next/etc/weir/weir.toml" "$1/etc/weir/weir.toml.$2" &&
        cmp "$work/next/etc/weir/weir-sockets.toml" "$1/etc/weir/weir-sockets.toml"
}
# holds_none ROOT FILE...: of the package these files alone are left.
holds_none() { diff <(printf '%s\n' "${@:2}") <(cd "$1" && find . -path ./var/lib/dpkg -prune -o -path ./var/lib/rpm -prune -o -name '*weir*' -print | sort); }

deb_into() { dpkg --root="$1" --force-confdef --force-confold "${@:2}"; }
rpm_into() { rpm --root "$1" --nodeps "${@:2}"; }

# check_life KIND ROOT OPTION FIRST NEXT SUFFIX: what holds for both kinds of packages, until after the upgrade. OPTION installs and
# upgrades; a new default is put next to a file that was edited, with SUFFIX.
check_life() {
    local kind=$1 root=$2 option=$3
    check "$kind: installs" "${kind}_into" "$root" "$option" "$4"
    check "$kind: holds what make install puts there" holds "$root"
    check "$kind: reloads the service manager and starts nothing" asked_systemctl "$root" "$RELOAD"
    check "$kind: makes the collector's user" has_the_user "$root"
    check "$kind: the program accepts the configuration" accepts_its_configuration "$root"
    check "$kind: the program relays and drains" relays "$root"
    rm -f "$root/tmp/out.log"
    echo "$EDIT" >>"$root/etc/weir/weir.toml"
    check "$kind: upgrades" "${kind}_into" "$root" "$option" "$5"
    check "$kind: an upgrade keeps a configuration that was edited" upgraded_as_it_should "$root" "$6"
}

purges_and_names_the_data() {
    mkdir "$1/var/lib/weir"
    deb_into "$1" --purge weir | tee "$work/purge.log"
    grep -q "keeping the data in /var/lib/weir" "$work/purge.log"
}
check_deb() {
    local root="$work/deb" next
    next=$(make_deb "$work/next" 2 "$work/packages")
    make_root "$root"
    mkdir -p "$root/var/lib/dpkg"/{info,updates}
    touch "$root/var/lib/dpkg"/{status,available}

    check_life deb "$root" --install "$folder"/weir_*.deb "$next" dpkg-dist
    check "deb: zsh finds the completions" completes_in_zsh "$root/usr/share/zsh/vendor-completions"
    check "deb: an upgrade stops nothing" asked_systemctl "$root" "$RELOAD"
    check "deb: removes" deb_into "$root" --remove weir
    check "deb: stops what is removed" asked_systemctl "$root" "$DISABLE" "$RELOAD"
    check "deb: removing keeps the configuration" grep -qx "$EDIT" "$root/etc/weir/weir.toml"
    check "deb: purges, and names the data that stay" purges_and_names_the_data "$root"
    check "deb: purging leaves nothing but data" holds_none "$root" ./var/lib/weir
}

check_rpm() {
    local root="$work/rpm" next
    next=$(make_rpm "$work/next" 2 "$work/packages")
    make_root "$root"

    check_life rpm "$root" --upgrade "$folder"/weir-*.rpm "$next" rpmnew
    check "rpm: zsh finds the completions" completes_in_zsh "$root/usr/share/zsh/site-functions"
    check "rpm: an upgrade stops nothing" asked_systemctl "$root" "$RELOAD" "$RELOAD"
    check "rpm: removes" rpm_into "$root" --erase weir
    check "rpm: stops what is removed" asked_systemctl "$root" "$DISABLE" "$RELOAD"
    check "rpm: removing keeps what was edited" grep -qx "$EDIT" "$root/etc/weir/weir.toml.rpmsave"
    check "rpm: and leaves nothing else" holds_none "$root" ./etc/weir ./etc/weir/weir.toml.rpmnew ./etc/weir/weir.toml.rpmsave
}

same_files() { diff <(cd "$work/tree" && find usr etc -type f | sed 's|^usr/||' | sort) <(cd "$1" && find . -type f | sed 's|^\./||' | sort); }
check_archive() {
    local archives=("$folder"/weir-*.tar.gz) unpacked took is_fast=true
    mkdir "$work/archive"
    unpacked="$work/archive/$(basename "${archives[0]}" .tar.gz)"
    check "archive: unpacks" tar -xzf "${archives[0]}" -C "$work/archive"
    check "archive: the same files as the packages" same_files "$unpacked"
    check "archive: the program runs" "$unpacked/bin/weir" --version
    took=$(scripts/newcomer.sh package "${archives[0]}" 2>&1) || is_fast=false
    check "archive: $took" "$is_fast"
}

check_bill() {
    have weir-python || { skip "bill of materials: the Python packages are not installed"; return; }
    check "the bill of materials is valid, and of the crates that were built" \
        weir-python scripts/check_sbom.py "$folder"/weir-*.cdx.json "$(uname -m)-unknown-linux-musl"
}

is_the_same_again() {
    cp "$folder/SHA256SUMS" "$work/SHA256SUMS"
    scripts/build-packages.sh >/dev/null
    diff "$work/SHA256SUMS" "$folder/SHA256SUMS"
}

check_archive
check_bill
for kind in deb rpm; do
    if [ "$(id -u)" -ne 0 ]; then
        skip "$kind: installing into a root folder needs root"
    elif ! have "${MAKERS[$kind]}"; then
        skip "$kind: ${MAKERS[$kind]} is not installed"
    else
        "check_$kind"
    fi
done
check "a second build makes the same packages" is_the_same_again
all_sums_are_right() { (cd "$folder" && sha256sum --check SHA256SUMS); }
check "the checksums are right" all_sums_are_right
finish
