#!/usr/bin/env bash
# fetch.sh [MAJOR]   (default: 15 where it is installed, else the newest that is)
#
# Gets the source package of PostgreSQL in the version of the binaries that its test suites will run
# against, and caches what the suites need in PGSEAL_CACHE (default build/upstream):
#   VERSION/src     src/test, src/pl, contrib, and of src/bin and src/interfaces/libpq what has tests
#   VERSION/pg      the binaries of that version, only where the installed ones are of another version
#   current-MAJOR   "VERSION installed|unpacked|fetched VERSION-OF-THE-BINARIES"
# Source and server must be of the same minor version, or tests fail that have nothing wrong with
# them. Where the source of the installed version cannot be had (the mirrors drop superseded
# security updates), the newest version whose source can be had is taken, together with its binary
# packages, unpacked beside the system. A major that is not installed but was got by
# scripts/postgres-versions.sh has its source where it came from.
#
# Uses a private apt configuration derived from the machine's own; installs nothing, changes nothing
# outside the cache, needs no root.
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

major=${1:-$(default_major)}
[ -n "$major" ] || die "no PostgreSQL server here; run scripts/setup.sh upstream"
origin=$(postgres_cache)/$major/origin
which=installed suites=
binaries=$(installed_version "postgresql-$major")
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
# A rebuild of the binaries alone has the same source.
wanted=${binaries%+b[0-9]*}
# What was fetched is not exchanged here for another version: its own source, or none.
others=
[ "$which" = fetched ] || others=$(grep -vxF "$wanted" <<<"$versions" || true)

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

# unpack PACKAGE...: of that version, into $work/pg
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

if [ "$which" = installed ]; then
    headers=$("/usr/lib/postgresql/$major/bin/pg_config" --includedir-server)
    if [ "$version" != "$binaries" ]; then
        which=unpacked
        unpack "postgresql-$major" "postgresql-client-$major" "postgresql-server-dev-$major" \
            "postgresql-plperl-$major" "postgresql-plpython3-$major" "postgresql-pltcl-$major"
        # libpq comes from the newest major's source; only where that is this one has it this
        # version.
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
# Translations, and the programs themselves: what is tested is the server that is here.
find "$work/src" -depth -name po -type d -exec rm -rf {} +
rm -rf "$work/full" "$work/dsc" "$work/err" "$work"/*.orig.tar.*

rm -rf "${cache:?}/$version"
mv "$work" "$cache/$version"
chmod 0755 "$cache/$version"
say "$version $which $binaries" >"$current"
say "upstream: PostgreSQL $version, $which binaries ($binaries)"
