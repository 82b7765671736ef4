#!/usr/bin/env bash
# fetch.sh [--binaries VERSION] [MAJOR]
#
# Without MAJOR: 15 if installed, else the newest installed major.
#
# Downloads PostgreSQL's source package in the version of the binaries under test, and caches what
# the suites need in PGSEAL_CACHE (default build/upstream):
#   VERSION/src     src/test, src/pl, contrib, src/bin and src/interfaces/libpq
#   VERSION/pg      binaries of VERSION if the installed version differs; headers if missing
#   current-MAJOR   "VERSION installed|unpacked|fetched VERSION-OF-THE-BINARIES"
# Source and server must have the same minor version, or tests fail without a fault. If the source
# of the installed version is not available (the mirrors drop superseded security updates), the
# script takes the newest version whose source is available, and unpacks that version's binary
# packages into the cache. If a major is not installed but scripts/postgres-versions.sh fetched it,
# the source comes from the same Debian suites as the fetched binaries. With --binaries it is the
# source of this version alone: that of the packages in another root (scripts/aarch64.sh).
#
# Uses a private apt configuration derived from the machine's own, installs nothing, changes nothing
# outside the cache, and needs no root.
set -euo pipefail
. "$(dirname "$0")/../../scripts/lib.sh"
. "$(dirname "$0")/../../scripts/lib/apt.sh"

cache=${PGSEAL_CACHE:-$PGSEAL_ROOT/build/upstream}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)

installed_version() {
    # shellcheck disable=SC2016 # dpkg's own placeholders
    dpkg-query -W -f '${db:Status-Status} ${Version}\n' "$1" 2>/dev/null | sed -n 's/^installed //p' || true
}

given=
read_options "binaries=given" "$@"
major=${REST[0]:-$(default_major)}
[ -n "$major" ] || die "no PostgreSQL server here; run scripts/setup.sh upstream"
origin=$(postgres_cache)/$major/origin
which=installed suites=
binaries=${given:-$(installed_version "postgresql-$major")}
if [ -z "$binaries" ] && [ -e "$origin" ]; then
    which=fetched
    read -r binaries from <"$origin"
    case "$from" in
    "Debian, "*) suites=$(sed -E 's/^Debian, //; s/, / /g' <<<"$from") ;;
    *) die "PostgreSQL $major comes from the $from, which has no source of its version's tests" ;;
    esac
fi
[ -n "$binaries" ] ||
    die "PostgreSQL $major is not from a Debian package; its source cannot be matched (scripts/postgres-versions.sh)"

current=$cache/current-$major
if [ -e "$current" ]; then
    read -r version have_which have_binaries <"$current"
    if [ "$have_binaries" = "$binaries" ] && [ -d "$cache/$version/src/src/bin" ]; then
        say "upstream: PostgreSQL $version, $have_which binaries, cached source"
        exit 0
    fi
fi
for tool in apt-get dpkg-source xz patch; do
    command -v "$tool" >/dev/null || die "$tool is missing; run scripts/setup.sh upstream"
done

apt_dir=$cache/apt
rm -rf "$apt_dir"
# shellcheck disable=SC2086 # one suite or two
private_apt "$apt_dir" "deb deb-src" $suites

say "upstream: looking for the source of PostgreSQL $binaries"
apt-get -qq update </dev/null 2>"$apt_dir/update.err" || warn "apt-get update: $(tail -n 1 "$apt_dir/update.err")"
versions=$(apt-cache showsrc --only-source "postgresql-$major" 2>/dev/null | sed -n 's/^Version: //p' | sort -uVr || true)
[ -n "$versions" ] || die "the package sources of this machine offer no source of postgresql-$major"
# A binary-only rebuild (+bN) has the same source.
wanted=${binaries%+b[0-9]*}
# Fetched binaries, and those of another root, are never replaced by another version: only their own
# source will do.
others=
[ "$which" = fetched ] || [ -n "$given" ] || others=$(grep -vxF "$wanted" <<<"$versions" || true)

work=$(mktemp -d "$cache/fetch.XXXXXX")
trap 'rm -rf "$work" "$apt_dir"' EXIT
version=
for candidate in $(grep -xF "$wanted" <<<"$versions" || true) $others; do
    mkdir -p "$work/dsc"
    if (cd "$work/dsc" && apt-get -qq source --download-only "postgresql-$major=$candidate" \
        >/dev/null 2>"$work/err" </dev/null); then
        version=$candidate
        break
    fi
    warn "no source of $candidate: $(grep -E '^(E|Err)' "$work/err" | head -n 1 | sed -E 's#[a-z]+://[^ ]*/##')"
    rm -rf "$work/dsc"
done
[ -n "$version" ] || die "the source of postgresql-$major ${binaries} cannot be had"

# unpack PACKAGE...: unpacks the packages of $version into $work/pg.
unpack() {
    local package deb
    mkdir -p "$work/debs" "$work/pg"
    for package; do
        (cd "$work/debs" && apt-get -qq download "$package=$version" >/dev/null 2>"$work/err" </dev/null) ||
            die "cannot get the package $package of version $version: $(tail -n 1 "$work/err")"
    done
    for deb in "$work"/debs/*.deb; do dpkg -x "$deb" "$work/pg"; done
    rm -rf "$work/debs"
}

if [ "$which" = installed ] && [ -z "$given" ]; then
    headers=$("/usr/lib/postgresql/$major/bin/pg_config" --includedir-server)
    if [ "$version" != "$binaries" ]; then
        which=unpacked
        unpack "postgresql-$major" "postgresql-client-$major" "postgresql-server-dev-$major" \
            "postgresql-plperl-$major" "postgresql-plpython3-$major" "postgresql-pltcl-$major"
        # libpq is built from the newest major's source, so libpq5 has this version only if this
        # major is the newest.
        if apt-cache madison libpq5 | grep -F " $version " >/dev/null; then unpack libpq5; fi
    elif [ ! -e "$headers/postgres.h" ] || [ "$(installed_version "postgresql-server-dev-$major")" != "$version" ]; then
        unpack "postgresql-server-dev-$major"
    fi
fi

dpkg-source --no-check -x "$work"/dsc/*.dsc "$work/full" >/dev/null 2>"$work/err" ||
    die "dpkg-source: $(tail -n 1 "$work/err")"
mkdir -p "$work/src/src/interfaces"
mv "$work/full/src/test" "$work/full/src/pl" "$work/full/src/bin" "$work/src/src"
mv "$work/full/src/interfaces/libpq" "$work/src/src/interfaces"
mv "$work/full/contrib" "$work/src/contrib"
# Removes the translations and the rest of the source: the suites run against the given binaries.
find "$work/src" -depth -name po -type d -exec rm -rf {} +
rm -rf "$work/full" "$work/dsc" "$work/err" "$work"/*.orig.tar.*

rm -rf "${cache:?}/$version"
mv "$work" "$cache/$version"
chmod 0755 "$cache/$version"
say "$version $which $binaries" >"$current"
say "upstream: PostgreSQL $version, $which binaries ($binaries)"
