# shellcheck shell=bash
# How packages are made of a tree of installed files. Source it behind lib.sh, do not run it.

# The time of the commit, not of the build: the same commit gives the same packages.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$ROOT" log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH

# package_version: the workspace's, as dpkg and rpm sort it: 1.0.0~rc.1 before 1.0.0.
package_version() { local version; version=$(version); printf '%s\n' "${version/-/\~}"; }

# stage WEIR PREFIX TREE: what `make install` copies, into a folder.
stage() { PREFIX=$2 DESTDIR=$3 "$ROOT/scripts/install.sh" install "$1"; }

debian_architecture() {
    case $(uname -m) in
        x86_64) echo amd64 ;;
        aarch64) echo arm64 ;;
        *) uname -m ;;
    esac
}

# make_deb TREE REVISION FOLDER: prints the package's path.
make_deb() {
    local version package work debian="$ROOT/deploy/packages/debian" script
    version="$(package_version)-$2"
    package="$3/weir_${version}_$(debian_architecture).deb"
    work=$(mktemp -d "$3/deb.XXXXXX")
    cp -a "$1/." "$work"
    chmod 755 "$work"
    # Debian's zsh looks for packages' completions in a folder of its own.
    [ ! -d "$work/usr/share/zsh/site-functions" ] || mv "$work/usr/share/zsh"/{site-functions,vendor-completions}
    install -m 644 "$debian/copyright" "$work/usr/share/doc/weir/copyright"
    install -d "$work/DEBIAN"
    for script in postinst prerm postrm; do install -m 755 "$debian/$script" "$work/DEBIAN/$script"; done
    (cd "$work" && find etc -type f -printf '/%p\n' | sort) >"$work/DEBIAN/conffiles"
    (cd "$work" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$work/DEBIAN/md5sums"
    sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$(debian_architecture)/" \
        -e "s/@INSTALLED_KIB@/$(du -sk --apparent-size "$1" | cut -f1)/" "$debian/control" >"$work/DEBIAN/control"
    chmod 644 "$work/DEBIAN"/{control,conffiles,md5sums}
    dpkg-deb --root-owner-group --build "$work" "$package" >/dev/null
    rm -rf "$work"
    printf '%s\n' "$package"
}

# make_rpm TREE RELEASE FOLDER: prints the package's path.
make_rpm() {
    local work package
    package="$3/weir-$(package_version)-$2.$(uname -m).rpm"
    work=$(mktemp -d "$3/rpm.XXXXXX")
    (cd "$1" && find usr -type f -printf '/%p\n' | sort) | sed -e '/LICENSE$/s/^/%license /' -e '/[.]md$/s/^/%doc /' >"$work/files"
    rpmbuild -bb --quiet --define "_topdir $work" --define "_rpmdir $3" --define "_build_name_fmt ${package##*/}" \
        --define "weir_version $(package_version)" --define "weir_release $2" --define "weir_root $1" --define "weir_files $work/files" \
        --define "_binary_payload w12.zstdio" --define "_buildhost weir" --define "use_source_date_epoch_as_buildtime 1" \
        --define "clamp_mtime_to_source_date_epoch 1" "$ROOT/deploy/packages/weir.spec" >"$work/log" 2>&1 || { cat "$work/log" >&2; return 1; }
    rm -rf "$work"
    printf '%s\n' "$package"
}

# make_archive WEIR FOLDER: the tree for /usr/local, with `etc` next to `bin`, `lib` and `share`; prints the archive's path.
make_archive() {
    local name work
    name="weir-$(version)-$(uname -m)-linux-musl"
    work=$(mktemp -d "$2/archive.XXXXXX")
    stage "$1" /usr/local "$work/root"
    mv "$work/root/usr/local" "$work/$name"
    mv "$work/root/etc" "$work/$name/etc"
    tar --create --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --directory "$work" "$name" |
        gzip --no-name >"$2/$name.tar.gz"
    rm -rf "$work"
    printf '%s\n' "$2/$name.tar.gz"
}
