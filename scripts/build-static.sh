#!/usr/bin/env bash
# Builds the static binary with every kind of sink, which the image and the packages share, and prints its path.
# `artifacts.json` next to it says what cargo built it from.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"

target="$(uname -m)-unknown-linux-musl"
folder="$TARGET/$target/release"

# Function names stay for backtraces; line tables would be most of the image.
export CARGO_PROFILE_RELEASE_STRIP=debuginfo
WEIR_COMMIT=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
export WEIR_COMMIT
# Clients in C (librdkafka, OpenSSL, zstd) are built against musl too.
export CC_x86_64_unknown_linux_musl=musl-gcc CC_aarch64_unknown_linux_musl=musl-gcc
# The crate cc builds everything anew when it changes, and who makes packages of the binary sets it.
unset SOURCE_DATE_EPOCH
say "building the static binary ($target)"
mkdir -p "$folder"
artifacts=$(mktemp "$folder/artifacts.XXXXXX")
trap 'rm -f "$artifacts"' EXIT
# Relative relocations packed: 2.4 MiB less. musl has understood them since 1.2.4, and the loader is in the binary.
cargo rustc --locked --release --package weir --bin weir --no-default-features --features all-sinks --target "$target" \
    --message-format json-render-diagnostics -- -C link-arg=-Wl,-z,pack-relative-relocs >"$artifacts"
mv "$artifacts" "$folder/artifacts.json"
printf '%s\n' "$folder/weir"
