#!/usr/bin/env bash
# Every example in the repository, and every TOML block of the documents, is a config that Weir accepts.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"

cargo build --quiet -p weir
weir="$TARGET/debug/weir"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for file in examples/*.toml deploy/systemd/weir.toml; do
    check "config $file" "$weir" config check "$file"
done

# Blocks in documents: ```toml ... ```, each on its own.
for document in README.md docs/*.md; do
    [ -f "$document" ] || continue
    awk -v prefix="$work/$(basename "$document" .md)" '
        /^```toml/ { file = sprintf("%s-%d.toml", prefix, ++n); next }
        /^```/ { file = "" }
        file { print > file }' "$document"
done
for file in "$work"/*.toml; do
    [ -f "$file" ] && check "config in $(basename "$file" .toml)" "$weir" config check "$file"
done

# The ConfigMap holds one too.
awk '/^  weir.toml: \|/ { inside = 1; next } inside && /^ {0,2}[^ ]/ { exit } inside { sub(/^    /, ""); print }' \
    deploy/kubernetes/weir.yaml >"$work/configmap.toml"
check "config in the ConfigMap" "$weir" config check "$work/configmap.toml"
finish
