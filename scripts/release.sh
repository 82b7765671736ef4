#!/usr/bin/env bash
# release.sh make [OUT] | check OUT | reproduce
#
#   make       builds the commit HEAD in a clone of its own, and leaves in OUT (default:
#              build/release) what a release has: the sources, the installed files as an archive,
#              Debian packages (also for arm64) and RPM packages, the notices and the bill of
#              materials, SHA256SUMS and its signature. RELEASE_KEY names the key of GnuPG that
#              signs. Without it the run is a dry run: a key is made for it, and thrown away; its
#              public half is beside the signature, in DRY-RUN-KEY.asc
#   check      checks OUT as a user would: signature, checksums, and the programs of the archive
#   reproduce  builds the commit HEAD twice, in directories of different names, and compares all
#              installed files. With diffoscope it says what differs
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib/packages.sh"
cd "$PGSEAL_ROOT"

read_options "" "$@"
set -- "${REST[@]}"
[ $# -ge 1 ] || die "make, check or reproduce?"

version=$(project_version)
name=pgseal-$version
archive=$name-linux-$(uname -m).tar.gz
work=
clean() {
    local status=$?
    trap - EXIT
    if [ -n "$work" ]; then
        [ ! -d "$work/gnupg" ] || gpgconf --homedir "$work/gnupg" --kill all >/dev/null 2>&1 || true
        rm -rf "$work"
    fi
    exit "$status"
}

begin() {
    [ -z "$(git status --porcelain)" ] || die "there are changes without a commit; a release is built from a commit"
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
    export SOURCE_DATE_EPOCH
    work=$(mktemp -d "${TMPDIR:-/tmp}/pgseal-release.XXXXXX")
    trap clean EXIT
}

# build_in DIR TARGET...: clones HEAD into DIR, makes the targets there, and installs into DIR/root.
# No path of this machine is in the results.
build_in() {
    local dir=$1 cargo_home=${CARGO_HOME:-$HOME/.cargo} sysroot
    shift
    sysroot=$(rustc --print sysroot)
    mkdir -p "$dir"
    git clone --quiet --no-hardlinks "$PGSEAL_ROOT" "$dir/src"
    git -C "$dir/src" checkout --quiet --detach "$(git rev-parse HEAD)"
    (
        cd "$dir/src"
        unset MAKEFLAGS MAKELEVEL MFLAGS DESTDIR CARGO_TARGET_DIR
        export CARGO_INCREMENTAL=0 AUDITABLE=yes
        # Its setup compiles nothing a second time.
        mkdir -p build
        [ ! -d "$PGSEAL_ROOT/build/tools" ] || ln -s "$PGSEAL_ROOT/build/tools" build/tools
        export RUSTFLAGS="--remap-path-prefix=$dir/src=/pgseal --remap-path-prefix=$cargo_home=/cargo --remap-path-prefix=$sysroot=/rust"
        # libaegis would be tuned for the machine that builds it.
        export CFLAGS="-mtune=generic -ffile-prefix-map=$dir/src=/pgseal -ffile-prefix-map=$cargo_home=/cargo"
        export COPT=$CFLAGS
        make "$@"
        make install DESTDIR="$dir/root" PREFIX=/usr
    )
}

make_release() {
    local out=$1 key=${RELEASE_KEY:-}
    [ ! -e "$out" ] || [ -e "$out/SHA256SUMS" ] || [ -z "$(ls -A "$out")" ] || die "$out is not empty, and no release"
    command -v gpg >/dev/null || die "gpg is missing; run scripts/setup.sh release"
    build_in "$work" build build-aws-kms deb rpm deb-arm64
    rm -rf "$out"
    mkdir -p "$out"
    git archive --format=tar.gz --prefix="$name/" -o "$out/$name-source.tar.gz" HEAD
    tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -C "$work/root" -c usr |
        gzip -n9 >"$out/$archive"
    cp "$work/src/build/deb/"*.deb "$work/src/build/deb-arm64/"*.deb "$work/src/build/rpm/"*.rpm "$work/src/target/notices/THIRD-PARTY-NOTICES.txt" \
        "$work/src/target/notices/pgseal.cdx.json" "$out/"
    changes >"$out/CHANGES.md"
    (cd "$out" && find . -maxdepth 1 -type f -printf '%P\n' | LC_ALL=C sort | xargs sha256sum) >"$work/SHA256SUMS"
    mv "$work/SHA256SUMS" "$out/"
    if [ -z "$key" ]; then
        export GNUPGHOME=$work/gnupg
        mkdir -m 0700 "$GNUPGHOME"
        key="pgseal dry run <dry-run@pgseal.invalid>"
        gpg --batch --quiet --passphrase '' --quick-generate-key "$key" ed25519 sign 1d
        gpg --batch --quiet --armor --export "$key" >"$out/DRY-RUN-KEY.asc"
    fi
    gpg --batch --quiet --armor --local-user "$key" --detach-sign --output "$out/SHA256SUMS.asc" "$out/SHA256SUMS"
    unset GNUPGHOME
    check "$out"
    say "release: $out, version $version, commit $(git rev-parse --short HEAD)${RELEASE_KEY:+, signed by $RELEASE_KEY}"
    [ -n "${RELEASE_KEY:-}" ] || say "release: this was a dry run; RELEASE_KEY names the key that signs a release"
}

# The changelog's section of this version; before the release that is "Unreleased".
changes() {
    local title=$version
    grep -qF "## [$version]" CHANGELOG.md || title=Unreleased
    awk -v title="## [$title]" '/^## \[/ { is = index($0, title) == 1 } is' CHANGELOG.md
}

check() {
    local out=$1 home root said package
    [ -e "$out/SHA256SUMS" ] || die "$out: no release (no SHA256SUMS)"
    home=${GNUPGHOME:-}
    if [ -e "$out/DRY-RUN-KEY.asc" ]; then
        home=$work/verify
        mkdir -m 0700 "$home"
        gpg --homedir "$home" --batch --quiet --import "$out/DRY-RUN-KEY.asc"
    fi
    gpg ${home:+--homedir "$home"} --batch --quiet --verify "$out/SHA256SUMS.asc" "$out/SHA256SUMS" 2>"$work/gpg.log" || {
        cat "$work/gpg.log" >&2
        die "$out/SHA256SUMS.asc is no valid signature"
    }
    (cd "$out" && sha256sum --quiet --strict -c SHA256SUMS)
    root=$work/unpacked
    mkdir "$root"
    tar -C "$root" -xzf "$out/$archive"
    said=$("$root/usr/bin/pgseal" --version)
    [ "$said" = "pgseal $version" ] || die "the archive contains \"$said\", not pgseal $version"
    "$root/usr/bin/pgseal" --licenses | grep -q AWS-LC || die "the archive's pgseal does not print its licences"
    check_crates "$out/pgseal.cdx.json" "$root"/usr/bin/* "$root"/usr/lib/pgseal/*.so "$root"/usr/lib/pgseal/providers/*
    check_packaged_crates unpack_deb "$out"/*_arm64.deb
    same_packages "$out"
    # A path of this machine in a program tells who built it, and cannot be reproduced elsewhere.
    for package in "$out"/*.deb; do unpack_deb "$package" "$root"; done
    if grep -rlaF -e "${CARGO_HOME:-$HOME/.cargo}/" -e "$work/src" -e "$(dirname "$(postgres_cache)")/aarch64/" "$root" >"$work/paths"; then
        cat "$work/paths" >&2
        die "these files contain paths of this machine"
    fi
    say "release: $(wc -l <"$out/SHA256SUMS") files, the signature and the checksums are right"
}

# same_packages DIR: the Debian packages for arm64 are those for this machine's PostgreSQL of the
# same major, and those that need none.
same_packages() {
    local native missing
    native=_$(dpkg --print-architecture).deb
    missing=$(comm -13 <(names_of "$1" "$native") <(names_of "$1" _arm64.deb))
    [ -z "$missing" ] || die "packages for arm64 alone: $missing"
    missing=$(comm -23 <(names_of "$1" "$native" | grep -v '^postgresql-') <(names_of "$1" _arm64.deb))
    [ -z "$missing" ] || die "no packages for arm64 of: $missing"
}

# names_of DIR SUFFIX: the names of the packages whose files end so.
names_of() { find "$1" -maxdepth 1 -name "*$2" -printf '%f\n' | sed 's/_.*//' | LC_ALL=C sort; }

reproduce() {
    local differ=0 file
    build_in "$work/a" build
    build_in "$work/a-second-directory" build
    while read -r file; do
        cmp -s "$work/a/root/$file" "$work/a-second-directory/root/$file" && continue
        differ=$((differ + 1))
        warn "/$file differs"
        if command -v diffoscope >/dev/null; then
            diffoscope --max-report-size 20000 "$work/a/root/$file" "$work/a-second-directory/root/$file" | head -n 40 >&2 || true
        fi
    done < <(cd "$work" && find a/root a-second-directory/root -type f | sed -E 's#^[^/]*/root/##' | LC_ALL=C sort -u)
    [ "$differ" = 0 ] || die "$differ installed files differ between two builds"
    say "reproduce: $(find "$work/a/root" -type f | wc -l) installed files of two builds are the same, byte for byte"
}

case $1 in
make)
    out=$(realpath -m "${2:-build/release}")
    begin
    make_release "$out"
    ;;
check)
    [ $# = 2 ] || die "which directory?"
    work=$(mktemp -d "${TMPDIR:-/tmp}/pgseal-release.XXXXXX")
    trap clean EXIT
    check "$(realpath "$2")"
    ;;
reproduce)
    begin
    reproduce
    ;;
*) die "make, check or reproduce?" ;;
esac
