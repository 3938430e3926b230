#!/usr/bin/env bash
# run.sh [FOLDER]: instructions a line of Weir's, syslog-ng's and rsyslog's parsers, for each line of lines.tsv, counted by callgrind, which other
# load on the machine does not change; and nanoseconds a line of the first two, by turns. Debian's packages are unpacked into FOLDER, not
# installed. Needs valgrind, gcc, python3 and Debian 12 on amd64 (the address in rsyslog.py).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=${1:-$(mktemp -d)}
root=$work/root
lines=$here/lines.tsv
mkdir -p "$root"
cd "$work"

if [ ! -e "$root/usr/sbin/rsyslogd" ]; then
    apt-get download rsyslog libestr0 libfastjson4 liblognorm5 syslog-ng-core syslog-ng-dev libivykis0 libivykis-dev libjson-c5 libnet1 \
        libglib2.0-0 libglib2.0-dev libpcre3 libpcre3-dev libwrap0 libdbi1
    for package in *.deb; do dpkg -x "$package" "$root"; done
fi

rustc --edition 2024 --crate-name wire --crate-type rlib -C opt-level=3 -C codegen-units=1 "$here/../../crates/wire/src/lib.rs" -o libwire.rlib
rustc --edition 2024 -C opt-level=3 "$here/weir.rs" --extern wire=libwire.rlib -o weir
lib=$root/usr/lib/x86_64-linux-gnu
include=$root/usr/include
gcc -O2 -w "$here/syslog-ng.c" -o syslog-ng -I"$include/syslog-ng" -I"$include/syslog-ng/eventlog" -I"$include/glib-2.0" \
    -I"$lib/glib-2.0/include" -I"$include" "$root/usr/lib/syslog-ng/libsyslog-ng-3.38.so.0" -L"$lib" -lglib-2.0 -Wl,--allow-shlib-undefined
SYSLOG_NG_MODULES=$(printf '%s' "$root"/usr/lib/syslog-ng/3*)
export SYSLOG_NG_MODULES
libraries=$lib:$root/lib/x86_64-linux-gnu:$root/usr/lib/syslog-ng

instructions() {
    LD_LIBRARY_PATH=$libraries valgrind --tool=callgrind --callgrind-out-file=/dev/null "$@" 2>&1 | sed -n 's/.*Collected : //p'
}
weir_start=$(instructions ./weir "$lines" 1 none)
ng_start=$(instructions ./syslog-ng "$lines" 1 none)
printf 'form\tweir\tsyslog-ng\trsyslog\tratio to the better\n'
cut -f1 "$lines" >names
while read -r name; do
    weir=$((($(instructions ./weir "$lines" 1000 "$name") - weir_start) / 1000))
    ng=$((($(instructions ./syslog-ng "$lines" 1000 "$name") - ng_start) / 1000))
    rsyslog=$(python3 "$here/rsyslog.py" "$root" "$lines" "$name" 1000)
    better=$((ng < rsyslog ? ng : rsyslog))
    printf '%s\t%s\t%s\t%s\t%s\n' "$name" "$weir" "$ng" "$rsyslog" "$(awk "BEGIN { printf \"%.2f\", $better / $weir }")"
done <names

printf '\nnanoseconds a line, 300,000 times, by turns\n'
for turn in 1 2 3; do
    ./weir "$lines" 300000 | sed "s/^/$turn\tweir\t/"
    LD_LIBRARY_PATH=$libraries ./syslog-ng "$lines" 300000 | cut -f1,2 | sed "s/^/$turn\tsyslog-ng\t/"
done
