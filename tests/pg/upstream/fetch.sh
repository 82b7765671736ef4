#!/usr/bin/env bash
# fetch.sh [MAJOR]
#
# Gets the source package of PostgreSQL in the version of the binaries that its test suites will run against,
# and caches what the suites need in PGSEAL_CACHE (default build/upstream):
#   VERSION/src     src/test, contrib/spi
#   VERSION/pg      the binaries of that version, only where the installed ones are of another version
#   current         "MAJOR VERSION installed|unpacked INSTALLED-VERSION"
# Source and server must be of the same minor version, or tests fail that have nothing wrong with them. Where
# the source of the installed version cannot be had (the mirrors drop superseded security updates), the newest
# version whose source can be had is taken, together with its binary packages, unpacked beside the system.
#
# Uses a private apt configuration derived from the machine's own; installs nothing, changes nothing outside
# the cache, needs no root.
set -euo pipefail
. "$(dirname "$0")/../../../scripts/lib.sh"

cache=${PGSEAL_CACHE:-$PGSEAL_ROOT/build/upstream}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)

installed_version() {
    # shellcheck disable=SC2016 # dpkg's own placeholders
    dpkg-query -W -f '${db:Status-Status} ${Version}\n' "$1" 2>/dev/null | sed -n 's/^installed //p'
}

major=${1:-${PGSEAL_PG_MAJOR:-}}
if [ -z "$major" ]; then
    majors=$(pg_configs | while read -r config; do pg_major "$config"; done)
    [ -n "$majors" ] || die "no PostgreSQL server here; run scripts/setup.sh upstream"
    major=$(grep -x 15 <<<"$majors" || tail -n 1 <<<"$majors")
fi
installed=$(installed_version "postgresql-$major")
[ -n "$installed" ] || die "PostgreSQL $major was not installed from a Debian package; its source cannot be matched"

if [ -e "$cache/current" ]; then
    read -r have_major version which have_installed <"$cache/current"
    if [ "$have_major" = "$major" ] && [ "$have_installed" = "$installed" ] && [ -d "$cache/$version/src" ]; then
        say "upstream: PostgreSQL $version, $which binaries, cached source"
        exit 0
    fi
fi
for tool in apt-get dpkg-source xz patch; do
    command -v "$tool" >/dev/null || die "$tool is missing; run scripts/setup.sh upstream"
done

# The machine's own sources with deb-src added, and its own options (proxies, checks) without its hooks.
apt_dir=$cache/apt
rm -rf "$apt_dir"
mkdir -p "$apt_dir/etc/sources.list.d" "$apt_dir/etc/apt.conf.d" "$apt_dir/etc/preferences.d" \
    "$apt_dir/state/lists/partial" "$apt_dir/cache/archives/partial"
eval "$(apt-config shell sources_list Dir::Etc::sourcelist/f sources_parts Dir::Etc::sourceparts/d \
    trusted Dir::Etc::trusted/f trusted_parts Dir::Etc::trustedparts/d \
    netrc Dir::Etc::netrc/f netrc_parts Dir::Etc::netrcparts/d status Dir::State::status/f)"
# shellcheck disable=SC2154 # set by the eval above
for file in "$sources_list" "$sources_parts"/*.list; do
    [ -f "$file" ] || continue
    sed -nE '/^deb /{p;s/^deb /deb-src /p}' "$file" >"$apt_dir/etc/sources.list.d/$(basename "$file" .list).list"
done
# shellcheck disable=SC2154
for file in "$sources_parts"/*.sources; do
    [ -f "$file" ] || continue
    sed -E 's/^Types:.*/Types: deb deb-src/' "$file" >"$apt_dir/etc/sources.list.d/$(basename "$file")"
done
# shellcheck disable=SC2154
{
    apt-config dump | grep -Ev '^(Dir|DPkg|APT::Update|RPM|CommandLine|Binary)(::| )'
    cat <<CONF
Dir::Etc "$apt_dir/etc";
Dir::Etc::trusted "$trusted";
Dir::Etc::trustedparts "$trusted_parts";
Dir::Etc::netrc "$netrc";
Dir::Etc::netrcparts "$netrc_parts";
Dir::State "$apt_dir/state";
Dir::State::status "$status";
Dir::Cache "$apt_dir/cache";
Acquire::Languages "none";
CONF
    # The cache may lie in a directory that apt's download user cannot enter.
    [ "$(id -u)" != 0 ] || say 'APT::Sandbox::User "root";'
} >"$apt_dir/apt.conf"
export APT_CONFIG=$apt_dir/apt.conf LC_ALL=C

say "upstream: looking for the source of PostgreSQL $installed"
apt-get -qq update </dev/null 2>"$apt_dir/update.err" || warn "apt-get update: $(tail -n 1 "$apt_dir/update.err")"
versions=$(apt-cache showsrc --only-source "postgresql-$major" 2>/dev/null | sed -n 's/^Version: //p' | sort -uVr || true)
[ -n "$versions" ] || die "the package sources of this machine offer no source of postgresql-$major"

work=$(mktemp -d "$cache/fetch.XXXXXX")
trap 'rm -rf "$work" "$apt_dir"' EXIT
version=
for candidate in $(grep -xF "$installed" <<<"$versions" || true) $(grep -vxF "$installed" <<<"$versions" || true); do
    mkdir -p "$work/dsc"
    if (cd "$work/dsc" && apt-get -qq source --download-only "postgresql-$major=$candidate" \
        >/dev/null 2>"$work/err" </dev/null); then
        version=$candidate
        break
    fi
    warn "no source of $candidate: $(grep -E '^(E|Err)' "$work/err" | head -n 1 | sed -E 's#[a-z]+://[^ ]*/##')"
    rm -rf "$work/dsc"
done
[ -n "$version" ] || die "the source of no version of postgresql-$major can be had"

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

which=installed
headers=$("/usr/lib/postgresql/$major/bin/pg_config" --includedir-server)
if [ "$version" != "$installed" ]; then
    which=unpacked
    unpack "postgresql-$major" "postgresql-client-$major" "postgresql-server-dev-$major"
    # libpq comes from the newest major's source; only where that is this one has it this version.
    if apt-cache madison libpq5 | grep -F " $version " >/dev/null; then unpack libpq5; fi
elif [ ! -e "$headers/postgres.h" ] || [ "$(installed_version "postgresql-server-dev-$major")" != "$version" ]; then
    unpack "postgresql-server-dev-$major"
fi

dpkg-source --no-check -x "$work"/dsc/*.dsc "$work/full" >/dev/null 2>"$work/err" ||
    die "dpkg-source: $(tail -n 1 "$work/err")"
mkdir -p "$work/src/src" "$work/src/contrib"
mv "$work/full/src/test" "$work/src/src/test"
mv "$work/full/contrib/spi" "$work/src/contrib/spi"
rm -rf "$work/full" "$work/dsc" "$work/err"

rm -rf "${cache:?}/$version"
mv "$work" "$cache/$version"
chmod 0755 "$cache/$version"
say "$major $version $which $installed" >"$cache/current"
say "upstream: PostgreSQL $version, $which binaries (installed: $installed)"
