#!/usr/bin/env bash
# `make install` and `make uninstall`, into a folder: which files there are, that they fit the prefix, and that configuration is kept.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"

binary=$(scripts/build-static.sh)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root="$work/root"

# make_into TARGET: makes the target with the static binary in the place of the one of `make build`.
make_into() { make --no-print-directory "$1" WEIR="$binary" PREFIX=/opt/weir DESTDIR="$root"; }

expected_files() {
    cat <<LIST
./etc/weir/weir-sockets.toml
./etc/weir/weir.toml
./opt/weir/bin/weir
./opt/weir/lib/sysctl.d/60-weir.conf
./opt/weir/lib/systemd/system/weir-namespace-helper.service
./opt/weir/lib/systemd/system/weir-namespace-helper.socket
./opt/weir/lib/systemd/system/weir-sockets.service
./opt/weir/lib/systemd/system/weir-sockets.service.d/10-memory.conf
./opt/weir/lib/systemd/system/weir.service
./opt/weir/lib/systemd/system/weir.service.d/10-memory.conf
./opt/weir/lib/systemd/system/weir.socket
./opt/weir/lib/sysusers.d/weir-sockets.conf
./opt/weir/share/doc/weir/CHANGELOG.md
./opt/weir/share/doc/weir/LICENSE
./opt/weir/share/doc/weir/deploy.md
./opt/weir/share/doc/weir/install.md
LIST
    cat <<LIST
./opt/weir/share/bash-completion/completions/weir
./opt/weir/share/fish/vendor_completions.d/weir.fish
./opt/weir/share/zsh/site-functions/_weir
LIST
    mkdir "$work/man"
    "$binary" man --out "$work/man"
    (cd "$work/man" && printf './opt/weir/share/man/man1/%s.gz\n' weir*.1)
}
installs_these_files() { make_into install && diff <(expected_files | sort) <(cd "$root" && find . -type f | sort); }
units_start_the_program_where_it_is() {
    local started
    started=$(sed -n 's/^Exec[A-Za-z]*=\([^ ]*weir\) .*/\1/p' "$root"/opt/weir/lib/systemd/system/*.service | sort -u)
    printf '%s\n' "$started"
    [ "$started" = /opt/weir/bin/weir ] && [ -x "$root$started" ]
}
documentation_is_where_units_say() {
    local path
    sed -n 's|^Documentation=file://||p' "$root"/opt/weir/lib/systemd/system/*.{service,socket} | sort -u >"$work/named"
    [ -s "$work/named" ] || return 1
    while read -r path; do [ -f "$root$path" ] || { printf 'there is no %s\n' "$path"; return 1; }; done <"$work/named"
}
keeps_configuration() {
    echo "# changed" >>"$root/etc/weir/weir.toml"
    make_into install && tail -n 1 "$root/etc/weir/weir.toml" | grep -qx '# changed'
}
leaves_only_what_was_changed() { make_into uninstall && diff <(echo ./etc/weir/weir.toml) <(cd "$root" && find . -type f); }
leaves_nothing() {
    rm "$root/etc/weir/weir.toml"
    make_into install && make_into uninstall && diff /dev/null <(cd "$root" && find . -type f -or -name 'weir*' -not -path ./opt/weir)
}
says_what_is_missing() { ! scripts/install.sh install "$work/none" 2>"$work/none.err" && grep -q 'make build' "$work/none.err"; }

check "install: these files and no others" installs_these_files
check "install: units start the program where it is" units_start_the_program_where_it_is
check "install: units name documentation that is there" documentation_is_where_units_say
check "install: the program runs" "$root/opt/weir/bin/weir" --version
check "install: its configuration is accepted" "$root/opt/weir/bin/weir" config check "$root/etc/weir/weir.toml"
check "install: a changed configuration is kept" keeps_configuration
check "uninstall: a changed configuration is kept, and nothing else" leaves_only_what_was_changed
check "uninstall: nothing is left" leaves_nothing
check "install: without a program it says what to do" says_what_is_missing
finish
