#!/usr/bin/env bash
# build.sh [MAJOR]   (default: 18)
#
# Builds PostgreSQL with injection points, which no distribution's package has, into
# build/upstream/injection/MAJOR. The source is the source package of the version that
# scripts/postgres-versions.sh fetched. With PGSEAL_POSTGRES_CACHE=build/upstream/injection any
# suite runs against this server (make test-upstream-injection). Needs a compiler, bison, flex and
# the headers of zlib and OpenSSL.
set -euo pipefail
. "$(dirname "$0")/../../scripts/lib.sh"
. "$(dirname "$0")/../../scripts/lib/apt.sh"

read_options "" "$@"
major=${REST[0]:-18}
cache=${PGSEAL_CACHE:-$PGSEAL_ROOT/build/upstream}
mkdir -p "$cache/injection"
target=$(cd "$cache/injection" && pwd)/$major
read -r version from <"$(postgres_cache)/$major/origin" ||
    die "run scripts/postgres-versions.sh fetch $major first"
if [ -e "$target/origin" ] && [ "$(cat "$target/origin")" = "$version $from" ]; then
    say "upstream: PostgreSQL $version with injection points, built before"
    exit 0
fi
for tool in bison flex make gcc dpkg-source; do
    command -v "$tool" >/dev/null || die "$tool is missing; run scripts/setup.sh injection"
done
case "$from" in
"Debian, "*) suites=$(sed -E 's/^Debian, //; s/, / /g' <<<"$from") ;;
*) die "PostgreSQL $major comes from the $from, which has no source package" ;;
esac

work=$(mktemp -d "$cache/build.XXXXXX")
trap 'rm -rf "$work"' EXIT
# shellcheck disable=SC2086 # one suite or two
private_apt "$work/apt" "deb deb-src" $suites
apt-get -qq update </dev/null 2>"$work/err" || warn "apt-get update: $(tail -n 1 "$work/err")"
(cd "$work" && apt-get -qq source --download-only "postgresql-$major=$version" >/dev/null 2>"$work/err" </dev/null) ||
    die "the source of postgresql-$major $version cannot be had: $(tail -n 1 "$work/err")"
dpkg-source --no-check -x "$work"/*.dsc "$work/src" >/dev/null 2>"$work/err" || die "dpkg-source: $(tail -n 1 "$work/err")"

# Debian's directories, since the suites copy a server from there.
lib=/usr/lib/postgresql/$major
say "upstream: building PostgreSQL $version with injection points; takes some minutes"
(
    cd "$work/src"
    ./configure --prefix=/usr --bindir="$lib/bin" --libdir="$lib/lib" --datadir="/usr/share/postgresql/$major" \
        --includedir=/usr/include/postgresql --enable-injection-points --enable-tap-tests --with-openssl \
        --without-readline --without-icu CFLAGS=-O1
    for dir in . contrib; do
        make -s -C "$dir" -j"$(nproc)" all
        make -s -C "$dir" install DESTDIR="$work/root"
    done
) >"$work/log" 2>&1 </dev/null || die "the build failed: $(tail -n 5 "$work/log")"
rm -rf "$target"
mv "$work/root" "$target"
say "${lib#/}/bin" >"$target/bindir"
say "$version $from" >"$target/origin"
say "upstream: PostgreSQL $version with injection points: $target"
