#!/usr/bin/env bash
# Installs what building and testing need on a Debian machine that has a Rust toolchain, and says what it does.
#
#   scripts/install-tools.sh build   a C linker and the pinned toolchain
#   scripts/install-tools.sh test    also the peers, checkers and servers that tests use
#   scripts/install-tools.sh image   also what assembles and inspects the container image
#   scripts/install-tools.sh fuzz    also cargo-fuzz and the ClickHouse engine, 0.9 GB
#
#   scripts/install-tools.sh packages     a C compiler for musl, and what makes and installs Debian packages and RPMs
#   scripts/install-tools.sh servers      the servers that sinks are tested against, and their clients
#   scripts/install-tools.sh bgp          the BGP speakers and the router that mitigation is tested against
#   scripts/install-tools.sh view         a Chromium, and what drives it and checks the page
#   scripts/install-tools.sh clickhouse   the ClickHouse engine alone
#
# What cannot be installed is named; the tests that need it then skip with a reason. Nothing here starts a service:
# programs whose Debian package brings one (rsyslog, syslog-ng, libfaketime, prometheus, nats) are unpacked under the target folder, not installed.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

STATSD_EXPORTER_VERSION=v0.31.0
HELM_VERSION=v3.22.0
GOFLOW2_VERSION=v2.2.6
GRPCURL_VERSION=v1.9.3
CARGO_FUZZ_VERSION=0.13.2
EXABGP_VERSION=4.2.22
# Debian has version 3, whose interface has other names.
GOBGP4_VERSION=v4.8.0
# The engine of ClickHouse 26.9.2.1 as a Python extension; no registry has a server of these years.
CHDB_VERSION=26.9.0
MAVEN_COPY=org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies
MAVEN_COPY_ONE=org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy
# Runs with Java 17, which Debian 12 has; 3.3 wants 21.
APICURIO_VERSION=2.6.13.Final
MUSL_TARGET=x86_64-unknown-linux-musl

cannot() { say "cannot install $1: $2"; }

# What runs a command as root here, or nothing if we may not.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif have sudo && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
        sudo "$@"
    else
        return 1
    fi
}

apt_install() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >"$WEIR_TOOLS/apt.log" 2>&1
}

# packages COMMAND=PACKAGE...: installs the Debian packages of the commands that are missing.
packages() {
    local pair missing=()
    for pair in "$@"; do
        have "${pair%%=*}" || missing+=("${pair#*=}")
    done
    [ "${#missing[@]}" -gt 0 ] || return 0
    have apt-get || { cannot "${missing[*]}" "no apt-get here; install them your way"; return 0; }
    say "installing Debian packages: ${missing[*]}"
    apt_install "${missing[@]}" && return 0
    # A fresh machine has no package lists yet.
    as_root apt-get update -qq >>"$WEIR_TOOLS/apt.log" 2>&1 || true
    apt_install "${missing[@]}" || {
        cannot "${missing[*]}" "needs root: apt-get install ${missing[*]} (log: $WEIR_TOOLS/apt.log)"
        tail -n 5 "$WEIR_TOOLS/apt.log" >&2 || true
    }
}

# unpack PACKAGE...: downloads Debian packages and unpacks them into $WEIR_TOOLS/root; needs no root.
unpack() {
    have apt-get || return 1
    local debs="$WEIR_TOOLS/debs" deb
    mkdir -p "$debs" "$WEIR_TOOLS/root"
    (cd "$debs" && apt-get download -q "$@") >"$WEIR_TOOLS/apt.log" 2>&1 || {
        # A fresh machine has no package lists yet.
        as_root apt-get update -qq >>"$WEIR_TOOLS/apt.log" 2>&1 || return 1
        (cd "$debs" && apt-get download -q "$@") >>"$WEIR_TOOLS/apt.log" 2>&1 || return 1
    }
    for deb in "$debs"/*.deb; do
        dpkg-deb -x "$deb" "$WEIR_TOOLS/root" || return 1
    done
    rm -rf "$debs"
}

# program NAME LINE: writes an executable NAME into the tools' folder that runs LINE.
program() {
    printf '#!/bin/sh\n%s\n' "$2" >"$WEIR_TOOLS/bin/$1"
    chmod 755 "$WEIR_TOOLS/bin/$1"
}

get_toolchain() {
    have cargo || die "no Rust toolchain: install rustup, then try again"
    have rustup || return 0
    (cd "$ROOT" && rustup show active-toolchain >/dev/null 2>&1 && cargo --version >/dev/null 2>&1) && return 0
    say "installing the toolchain that rust-toolchain.toml names"
    (cd "$ROOT" && rustup toolchain install)
}

get_rsyslogd() {
    have rsyslogd && return 0
    say "unpacking rsyslogd (its service is neither installed nor started)"
    unpack rsyslog libestr0 libfastjson4 liblognorm5 || { cannot rsyslog "see $WEIR_TOOLS/apt.log"; return 0; }
    local multiarch
    multiarch=$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || printf 'x86_64-linux-gnu')
    local lib="$WEIR_TOOLS/root/usr/lib/$multiarch"
    program rsyslogd "LD_LIBRARY_PATH='$lib' exec '$WEIR_TOOLS/root/usr/sbin/rsyslogd' -M '$lib/rsyslog' \"\$@\""
}

get_faketime() {
    have weir-clock && return 0
    say "unpacking libfaketime"
    unpack libfaketime || { cannot libfaketime "see $WEIR_TOOLS/apt.log"; return 0; }
    local library
    library=$(printf '%s' "$WEIR_TOOLS"/root/usr/lib/*/faketime/libfaketime.so.1)
    program weir-clock "LD_PRELOAD='$library' exec \"\$@\""
}

get_syslog_ng() {
    have syslog-ng && return 0
    say "unpacking syslog-ng (its service is neither installed nor started)"
    unpack syslog-ng-core libivykis0 libjson-c5 libnet1 libpcre3 libglib2.0-0 libwrap0 ||
        { cannot syslog-ng "see $WEIR_TOOLS/apt.log"; return 0; }
    local multiarch
    multiarch=$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || printf 'x86_64-linux-gnu')
    local lib="$WEIR_TOOLS/root/usr/lib" modules
    modules=$(printf '%s' "$lib"/syslog-ng/[0-9]*)
    program syslog-ng "LD_LIBRARY_PATH='$lib/$multiarch:$WEIR_TOOLS/root/lib/$multiarch:$lib/syslog-ng' \
        exec '$WEIR_TOOLS/root/usr/sbin/syslog-ng' --module-path='$modules' \"\$@\""
}

get_prometheus() {
    have promtool && have prometheus && return 0
    say "unpacking prometheus and promtool (the service is neither installed nor started)"
    unpack prometheus || { cannot prometheus "see $WEIR_TOOLS/apt.log"; return 0; }
    ln -sf ../root/usr/bin/promtool ../root/usr/bin/prometheus "$WEIR_TOOLS/bin/"
}

get_python_packages() {
    local wanted="$ROOT/scripts/requirements.txt" venv="$WEIR_TOOLS/venv"
    cmp -s "$wanted" "$venv/requirements.txt" && return 0
    say "installing Python packages into $venv: $(grep -v '^#' "$wanted" | tr '\n' ' ')"
    # Debian's python3 has venv only with another package.
    python3 -c 'import ensurepip' 2>/dev/null || packages python-with-ensurepip=python3-venv
    # What draws the charts of a report as PNG is a Python package around this library.
    [[ "$(ldconfig -p 2>/dev/null)" == *libcairo.so.2* ]] || packages libcairo=libcairo2
    python3 -m venv "$venv" || { cannot "the Python packages" "no venv"; return 0; }
    "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$wanted" || {
        cannot "the Python packages" "pip install failed"
        return 0
    }
    program weir-python "exec '$venv/bin/python3' \"\$@\""
    program kubernetes-validate "exec '$venv/bin/kubernetes-validate' \"\$@\""
    cp "$wanted" "$venv/requirements.txt"
}

# go_program NAME GO_VERSION PACKAGE@VERSION: builds a program that no Debian package has, or none of its version.
go_program() {
    have "$1" && return 0
    have go || { cannot "$1" "no go here ($2 or newer)"; return 0; }
    say "building $1 ${3##*@}"
    GOBIN="$WEIR_TOOLS/bin" go install "$3" || cannot "$1" "go install failed"
}

# The broker's version is in its pom.xml.
get_kafka() {
    local wanted="$ROOT/scripts/servers/kafka/pom.xml" folder="$WEIR_TOOLS/kafka"
    cmp -s "$wanted" "$folder/pom.xml" && return 0
    packages java=default-jre-headless mvn=maven
    have mvn || { cannot kafka "no mvn here"; return 0; }
    say "copying the jars of a Kafka broker (43 MB) into $folder"
    rm -rf "$folder"
    mvn -q -B -Dstyle.color=never -f "$wanted" "$MAVEN_COPY" -DoutputDirectory="$folder/jars" || { cannot kafka "mvn failed"; return 0; }
    # Flags for a short life on a small machine: it starts in less time than with the defaults, and stays below 400 MB.
    program weir-kafka "exec java -Xmx384m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
    -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp '$folder/jars/*' \"\$@\""
    cp "$wanted" "$folder/pom.xml"
}

get_schema_registry() {
    local folder="$WEIR_TOOLS/schema-registry" name="apicurio-registry-app-$APICURIO_VERSION"
    [ -e "$folder/$name-runner.jar" ] && return 0
    packages java=default-jre-headless mvn=maven
    have mvn || { cannot "the schema registry" "no mvn here"; return 0; }
    say "unpacking Apicurio Registry $APICURIO_VERSION (142 MB) into $folder"
    rm -rf "$folder"
    mvn -q -B -Dstyle.color=never "$MAVEN_COPY_ONE" -Dartifact="io.apicurio:apicurio-registry-app:$APICURIO_VERSION:tar.gz:all" \
        -DoutputDirectory="$folder" || { cannot "the schema registry" "mvn failed"; return 0; }
    tar -xzf "$folder/$name-all.tar.gz" -C "$folder"
    rm "$folder/$name-all.tar.gz"
    program weir-schema-registry "exec java -Xmx384m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \"\$@\" -jar '$folder/$name-runner.jar'"
}

# NSQ's version is in the go.mod.
get_nsq() {
    local module="$ROOT/scripts/servers/nsq" wanted="$WEIR_TOOLS/nsq.mod" app
    cmp -s "$module/go.mod" "$wanted" && return 0
    have go || { cannot nsq "no go here (1.24 or newer)"; return 0; }
    say "building nsqd, nsqlookupd and nsq_tail"
    for app in nsqd nsqlookupd nsq_tail; do
        (cd "$module" && GOBIN="$WEIR_TOOLS/bin" go install "github.com/nsqio/nsq/apps/$app") ||
            { cannot "$app" "go install failed"; return 0; }
    done
    cp "$module/go.mod" "$wanted"
}

get_nats() {
    have nats-server && return 0
    say "unpacking nats-server (its service is neither installed nor started)"
    unpack nats-server || { cannot nats-server "see $WEIR_TOOLS/apt.log"; return 0; }
    ln -sf ../root/usr/sbin/nats-server "$WEIR_TOOLS/bin/nats-server"
}

# Debian's package redis-server is a service around a program of redis-tools that looks at the name by which it is called.
get_redis() {
    packages redis-cli=redis-tools
    have redis-server && return 0
    have redis-check-rdb || return 0
    ln -sf "$(command -v redis-check-rdb)" "$WEIR_TOOLS/bin/redis-server"
}

# In a venv of its own: it is large, and not for a first look at the tests.
get_clickhouse() {
    local venv="$WEIR_TOOLS/clickhouse"
    [ "$(cat "$venv/version" 2>/dev/null)" = "$CHDB_VERSION" ] && return 0
    say "installing the ClickHouse engine (chdb-core $CHDB_VERSION, 0.9 GB) into $venv"
    python3 -c 'import ensurepip' 2>/dev/null || packages python-with-ensurepip=python3-venv
    python3 -m venv --clear "$venv" || { cannot "the ClickHouse engine" "no venv"; return 0; }
    "$venv/bin/pip" install --quiet --disable-pip-version-check "chdb-core==$CHDB_VERSION" || {
        cannot "the ClickHouse engine" "pip install failed"
        return 0
    }
    program weir-clickhouse "exec '$venv/bin/python3' \"\$@\""
    printf '%s\n' "$CHDB_VERSION" >"$venv/version"
}

get_bird() {
    have birdcl && return 0
    say "unpacking bird (its service is neither installed nor started)"
    unpack bird2 libssh-gcrypt-4 || { cannot bird "see $WEIR_TOOLS/apt.log"; return 0; }
    local multiarch app
    multiarch=$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || printf 'x86_64-linux-gnu')
    for app in bird birdcl; do
        program "$app" "LD_LIBRARY_PATH='$WEIR_TOOLS/root/usr/lib/$multiarch' exec '$WEIR_TOOLS/root/usr/sbin/$app' \"\$@\""
    done
}

get_gobgp() {
    if ! have gobgpd; then
        say "unpacking gobgpd (its service is neither installed nor started)"
        unpack gobgpd || { cannot gobgpd "see $WEIR_TOOLS/apt.log"; return 0; }
        ln -sf ../root/usr/bin/gobgpd "$WEIR_TOOLS/bin/gobgpd"
    fi
    have gobgpd4 && return 0
    have go || { cannot gobgpd4 "no go here (1.24 or newer)"; return 0; }
    say "building gobgpd $GOBGP4_VERSION as gobgpd4"
    GOBIN="$WEIR_TOOLS/gobgp4" go install "github.com/osrg/gobgp/v4/cmd/gobgpd@$GOBGP4_VERSION" ||
        { cannot gobgpd4 "go install failed"; return 0; }
    ln -sf ../gobgp4/gobgpd "$WEIR_TOOLS/bin/gobgpd4"
}

# In a venv of its own: its console script is started by a test as a router's operator would.
get_exabgp() {
    local venv="$WEIR_TOOLS/exabgp"
    [ "$(cat "$venv/version" 2>/dev/null)" = "$EXABGP_VERSION" ] && return 0
    say "installing ExaBGP $EXABGP_VERSION into $venv"
    python3 -c 'import ensurepip' 2>/dev/null || packages python-with-ensurepip=python3-venv
    python3 -m venv --clear "$venv" || { cannot exabgp "no venv"; return 0; }
    "$venv/bin/pip" install --quiet --disable-pip-version-check "exabgp==$EXABGP_VERSION" || { cannot exabgp "pip install failed"; return 0; }
    ln -sf ../exabgp/bin/exabgp "$WEIR_TOOLS/bin/exabgp"
    printf '%s\n' "$EXABGP_VERSION" >"$venv/version"
}

for_bgp() {
    packages ip=iproute2 socat=socat
    get_bird
    get_gobgp
    get_exabgp
}

# What the tests of the page use; its versions are in package-lock.json. Nothing of it is built in: the page needs no Node.
get_view_packages() {
    local wanted="$ROOT/scripts/view/package-lock.json" folder="$WEIR_TOOLS/view"
    cmp -s "$wanted" "$folder/package-lock.json" && return 0
    have npm || { cannot "what drives a browser" "no npm here (Node 20 or newer)"; return 0; }
    say "installing npm packages into $folder: playwright-core, axe-core, typescript"
    rm -rf "$folder"
    mkdir -p "$folder"
    cp "$ROOT/scripts/view/package.json" "$wanted" "$folder"
    (cd "$folder" && npm ci --ignore-scripts --no-audit --no-fund --silent) || {
        rm -f "$folder/package-lock.json"
        cannot "what drives a browser" "npm ci failed"
        return 0
    }
    program weir-node "NODE_PATH='$folder/node_modules' exec node \"\$@\""
    program weir-tsc "exec node '$folder/node_modules/typescript/bin/tsc' \"\$@\""
}

for_view() {
    packages chromium=chromium node=nodejs npm=npm
    get_view_packages
}

get_miri() {
    have rustup || { cannot miri "no rustup here"; return 0; }
    rustup toolchain list | grep -q '^nightly' || { cannot miri "no nightly toolchain here"; return 0; }
    rustup component list --toolchain nightly --installed 2>/dev/null | grep -q '^miri' && return 0
    say "adding miri to the nightly toolchain"
    local _try
    for _try in 1 2 3; do rustup component add --toolchain nightly miri rust-src && return 0; done
    cannot miri "rustup component add failed"
}

get_musl() {
    have rustup || { cannot "$MUSL_TARGET" "no rustup here"; return 0; }
    (cd "$ROOT" && rustup target list --installed | grep -qx "$MUSL_TARGET") && return 0
    say "adding the Rust target $MUSL_TARGET"
    (cd "$ROOT" && rustup target add "$MUSL_TARGET") || cannot "$MUSL_TARGET" "rustup target add failed"
}

get_cargo_fuzz() {
    # libFuzzer is C++.
    packages c++=g++
    have cargo-fuzz && return 0
    say "building cargo-fuzz $CARGO_FUZZ_VERSION"
    cargo install cargo-fuzz --version "$CARGO_FUZZ_VERSION" --locked --quiet --root "$WEIR_TOOLS" ||
        cannot cargo-fuzz "cargo install failed"
}

for_build() {
    packages cc=gcc cc=libc6-dev
    get_toolchain
}

for_image() {
    for_build
    packages buildah=buildah skopeo=skopeo umoci=umoci musl-gcc=musl-tools
    get_musl
}

for_packages() {
    for_build
    packages musl-gcc=musl-tools dpkg-deb=dpkg rpmbuild=rpm python3=python3
    get_musl
}

for_servers() {
    packages kcat=kcat
    get_redis
    get_nats
    get_nsq
    get_kafka
    get_schema_registry
    get_python_packages
}

for_test() {
    for_image
    for_packages
    packages ip=iproute2 socat=socat shellcheck=shellcheck systemd-analyze=systemd python3=python3 \
        sysctl=procps tcpdump=tcpdump busybox=busybox logger=bsdutils
    get_rsyslogd
    get_syslog_ng
    get_faketime
    get_prometheus
    for_servers
    go_program statsd_exporter 1.24 "github.com/prometheus/statsd_exporter@$STATSD_EXPORTER_VERSION"
    go_program goflow2 1.24 "github.com/netsampler/goflow2/v2/cmd/goflow2@$GOFLOW2_VERSION"
    go_program grpcurl 1.24 "github.com/fullstorydev/grpcurl/cmd/grpcurl@$GRPCURL_VERSION"
    go_program helm 1.26 "helm.sh/helm/v3/cmd/helm@$HELM_VERSION"
    for_bgp
    for_view
    get_miri
}

mkdir -p "$WEIR_TOOLS/bin"
# Two clones may share the folder.
exec 9>"$WEIR_TOOLS/lock"
flock 9
case "${1:-}" in
    build) for_build ;;
    image) for_image ;;
    packages) for_packages ;;
    test) for_test ;;
    fuzz) for_test; get_cargo_fuzz; get_clickhouse ;;
    servers) for_servers; get_clickhouse ;;
    bgp) for_bgp ;;
    view) for_view ;;
    clickhouse) get_clickhouse ;;
    *) die "usage: $0 build|image|packages|test|fuzz|servers|bgp|view|clickhouse" ;;
esac
