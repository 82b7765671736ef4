#!/usr/bin/env bash
# quickstart.sh [DIR]
#
# The demonstration of 'make demo' without a compiler, where there are packages of pgseal: the one
# that is installed, or those in DIR (default: build/deb, where 'make deb' puts them), or those that
# apt knows. Packages of DIR and of apt are unpacked into a directory of their own, not installed.
# Where there are none, it builds: 'make demo'. Installs a PostgreSQL server if there is none.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$PGSEAL_ROOT"

case ${1:-} in
-h | --help)
    usage
    exit 0
    ;;
-*) die "unknown option $1" ;;
esac
[ $# -le 1 ] || die "want one directory of packages"
packages=${1:-build/deb}
[ $# = 0 ] || [ -d "$packages" ] || die "$packages is no directory of packages"

scripts/step.sh "a PostgreSQL server, if there is none" 30 scripts/setup.sh server
config=$(pg_configs | tail -n 1)
[ -n "$config" ] || die "no PostgreSQL server here"
major=$(pg_major "$config")
names=(pgseal "postgresql-$major-pgseal")

# unpack DIR: unpacks the packages of DIR into a new directory, and prints its name.
unpack() {
    local root name file
    # Not below the home directory, which the user of the servers may not enter.
    root=$(mktemp -d /tmp/pgseal-quick.XXXXXX)
    chmod 0755 "$root"
    for name in "${names[@]}"; do
        file=$(newest "$1" "$name")
        warn "unpacking ${file##*/}"
        dpkg-deb -x "$file" "$root" || die "$file could not be unpacked"
    done
    # Where pgseal looks beside itself.
    mkdir -p "$root/usr/lib/pgseal/guard/$major"
    cp "$root/usr/lib/postgresql/$major/lib/pgseal_guard.so" "$root/usr/lib/pgseal/guard/$major/"
    say "$root"
}

# newest DIR PACKAGE: prints the package's newest file of this architecture in DIR, or fails.
newest() {
    local file newest='' version='' this
    for file in "$1/$2"_*_"$(dpkg --print-architecture)".deb; do
        [ -e "$file" ] || continue
        this=$(dpkg-deb -f "$file" Version)
        if [ -z "$newest" ] || dpkg --compare-versions "$this" gt "$version"; then newest=$file version=$this; fi
    done
    [ -n "$newest" ] && say "$newest"
}

has_all() {
    local name
    for name in "${names[@]}"; do newest "$1" "$name" >/dev/null || return 1; done
}

in_apt() {
    local name
    command -v apt-get >/dev/null || return 1
    for name in "${names[@]}"; do
        apt-cache policy "$name" 2>/dev/null | grep 'Candidate: [^(]' >/dev/null || return 1
    done
}

fetched=
finish() { [ -z "$fetched" ] || rm -rf "$fetched"; }
trap finish EXIT

if [ $# = 0 ] && installed=$(command -v pgseal) && [ -e "$("$config" --pkglibdir)/pgseal_guard.so" ]; then
    say "quickstart: the pgseal that is installed, $installed"
    bin=$(dirname "$(realpath "$installed")")
elif command -v dpkg-deb >/dev/null && has_all "$packages"; then
    say "quickstart: packages of $packages"
    root=$(unpack "$packages")
    bin=$root/usr/bin
elif [ $# = 1 ]; then
    die "$packages has no packages ${names[*]} for this machine"
elif in_apt; then
    say "quickstart: packages that apt knows"
    fetched=$(mktemp -d)
    # apt drops its rights for downloads.
    chmod 0777 "$fetched"
    (cd "$fetched" && apt-get -qq download "${names[@]}") || die "apt-get could not download ${names[*]}"
    root=$(unpack "$fetched")
    bin=$root/usr/bin
else
    say "quickstart: no packages of pgseal for PostgreSQL $major here; building it"
    exec make demo
fi
DEMO_BIN=$bin scripts/demo.sh
[ -z "${root:-}" ] || say "The programs of this demonstration are in $root; remove it with the cluster."
