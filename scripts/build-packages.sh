#!/usr/bin/env bash
# Makes what is handed out, of the static binary with every kind of sink: a Debian package, an RPM, an archive, a bill of
# materials, and their checksums. Prints the folder.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=scripts/packages.sh
source "$ROOT/scripts/packages.sh"
cd "$ROOT"

"$ROOT/scripts/install-tools.sh" packages
binary=$(scripts/build-static.sh)
folder="$TARGET/packages"
rm -rf "$folder"
mkdir -p "$folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
stage "$binary" /usr "$work/tree"

if have dpkg-deb; then make_deb "$work/tree" 1 "$folder" >&2; else say "no Debian package: there is no dpkg-deb here"; fi
if have rpmbuild; then make_rpm "$work/tree" 1 "$folder" >&2; else say "no RPM: there is no rpmbuild here"; fi
make_archive "$binary" "$folder" >&2
python3 scripts/sbom.py "${binary%/*}/artifacts.json" >"$folder/weir-$(version)-$(uname -m)-linux-musl.cdx.json"
(cd "$folder" && sha256sum ./*) >"$work/SHA256SUMS"
mv "$work/SHA256SUMS" "$folder/SHA256SUMS"
printf '%s\n' "$folder"
