#!/usr/bin/env bash
# Builds the static binary and assembles the image of the Dockerfile around it, without a container engine.
# The result is an OCI archive; `skopeo copy oci-archive:FILE docker-daemon:weir:VERSION` or a registry takes it.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"

"$ROOT/scripts/install-tools.sh" image
have buildah || die "buildah is not installed"

version=$(version)
folder="$TARGET/image"
archive="$folder/weir-$version-$(uname -m).oci.tar"
binary=$(scripts/build-static.sh)

mkdir -p "$folder"
work=$(mktemp -d "$folder/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/context"
install -m 755 "$binary" "$work/context/weir"

say "assembling $archive"
rm -f "$archive"
# The time of the commit, not of the build: the same commit gives the same image.
created=$(git log -1 --format=%ct 2>/dev/null || echo 0)
STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot buildah --log-level error --root "$work/root" --runroot "$work/run" bud \
    --quiet --timestamp "$created" --target prebuilt \
    --label "org.opencontainers.image.version=$version" \
    --label "org.opencontainers.image.revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)" \
    --file Dockerfile --tag "oci-archive:$archive:weir:$version" "$work/context" >/dev/null
printf '%s\n' "$archive"
