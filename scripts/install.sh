#!/usr/bin/env bash
# Copies Weir and what belongs to it to where a Linux system looks for them, or removes it again. Starts nothing.
#
#   scripts/install.sh install WEIR     WEIR is the program, built already
#   scripts/install.sh uninstall
#
# PREFIX (/usr/local) is where the program lives, DESTDIR (empty) a folder that stands for the root of the system. Configuration
# goes to /etc/weir whatever the prefix, because that is where the units look.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

umask 022
PREFIX=${PREFIX:-/usr/local}
DESTDIR=${DESTDIR:-}
UNITS=(weir.service weir.socket weir-sockets.service weir-namespace-helper.service weir-namespace-helper.socket)
DOCUMENTS=(CHANGELOG.md LICENSE docs/deploy.md docs/install.md)
CONFIGS=(weir.toml weir-sockets.toml)
# Services whose memory limits follow from their configuration.
LIMITED=(weir.service weir-sockets.service)

systemd=$PREFIX/lib/systemd/system
documents=$PREFIX/share/doc/weir
man=$PREFIX/share/man/man1
bash_completions=$PREFIX/share/bash-completion/completions
zsh_completions=$PREFIX/share/zsh/site-functions
fish_completions=$PREFIX/share/fish/vendor_completions.d

# put MODE SOURCE DESTINATION: the destination is below DESTDIR, and its folder is made.
put() { install -D -m "$1" "$2" "$DESTDIR$3"; }

# put_unit NAME: the unit, for a program below this prefix.
put_unit() {
    install -d "$DESTDIR$systemd"
    sed -e "s|/usr/bin/weir|$PREFIX/bin/weir|g" -e "s|/usr/share/doc|$PREFIX/share/doc|g" "$ROOT/deploy/systemd/$1" >"$DESTDIR$systemd/$1"
    chmod 644 "$DESTDIR$systemd/$1"
}

# put_config NAME: never over a file that is there.
put_config() {
    if [ -e "$DESTDIR/etc/weir/$1" ]; then
        say "keeping $DESTDIR/etc/weir/$1"
    else
        put 644 "$ROOT/deploy/systemd/$1" "/etc/weir/$1"
    fi
}

# put_generated WEIR: completions and man pages, which the program writes itself.
put_generated() {
    install -d "$DESTDIR"{"$bash_completions","$zsh_completions","$fish_completions","$man"}
    "$1" completions bash >"$DESTDIR$bash_completions/weir"
    "$1" completions zsh >"$DESTDIR$zsh_completions/_weir"
    "$1" completions fish >"$DESTDIR$fish_completions/weir.fish"
    "$1" man --out "$DESTDIR$man"
    gzip --force --best --no-name "$DESTDIR$man"/weir*.1
}

install_all() {
    local name
    [ -x "$1" ] || die "there is no $1. Fix: make build"
    put 755 "$1" "$PREFIX/bin/weir"
    for name in "${UNITS[@]}"; do put_unit "$name"; done
    for name in "${LIMITED[@]}"; do put 644 "$ROOT/deploy/systemd/$name.d/10-memory.conf" "$systemd/$name.d/10-memory.conf"; done
    put 644 "$ROOT/deploy/systemd/weir-sockets.sysusers" "$PREFIX/lib/sysusers.d/weir-sockets.conf"
    put 644 "$ROOT/deploy/systemd/60-weir.conf" "$PREFIX/lib/sysctl.d/60-weir.conf"
    for name in "${DOCUMENTS[@]}"; do put 644 "$ROOT/$name" "$documents/${name##*/}"; done
    for name in "${CONFIGS[@]}"; do put_config "$name"; done
    put_generated "$1"
    [ -n "$DESTDIR" ] || say "installed; docs/install.md says what is next (systemd-sysusers, systemctl daemon-reload, sysctl --system)"
}

uninstall_all() {
    local name
    for name in "${CONFIGS[@]}"; do
        # What was changed is the administrator's.
        cmp -s "$ROOT/deploy/systemd/$name" "$DESTDIR/etc/weir/$name" && rm "$DESTDIR/etc/weir/$name"
        [ ! -e "$DESTDIR/etc/weir/$name" ] || say "keeping $DESTDIR/etc/weir/$name, which was changed"
    done
    for name in "${UNITS[@]}"; do rm -f "$DESTDIR$systemd/$name"; done
    for name in "${LIMITED[@]}"; do
        rm -f "$DESTDIR$systemd/$name.d/10-memory.conf"
        [ ! -d "$DESTDIR$systemd/$name.d" ] || rmdir --ignore-fail-on-non-empty "$DESTDIR$systemd/$name.d"
    done
    rm -f "$DESTDIR$PREFIX"/{bin/weir,lib/sysusers.d/weir-sockets.conf,lib/sysctl.d/60-weir.conf} "$DESTDIR$man"/weir{,-*}.1.gz \
        "$DESTDIR$bash_completions/weir" "$DESTDIR$zsh_completions/_weir" "$DESTDIR$fish_completions/weir.fish"
    for name in "${DOCUMENTS[@]}"; do rm -f "$DESTDIR$documents/${name##*/}"; done
    # The folders that are Weir's alone, unless something is left in them.
    for name in "$DESTDIR$documents" "$DESTDIR/etc/weir"; do
        [ ! -d "$name" ] || rmdir --ignore-fail-on-non-empty "$name"
    done
}

case "${1:-}" in
    install) install_all "${2:?the program}" ;;
    uninstall) uninstall_all ;;
    *) die "usage: $0 install WEIR | uninstall" ;;
esac
