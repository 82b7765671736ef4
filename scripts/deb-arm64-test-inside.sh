#!/usr/bin/env bash
# deb-arm64-test-inside.sh DIR MAJOR
#
# aarch64.sh runs this in the root for arm64, as root. Installs the packages of DIR with dpkg, makes
# a sealed cluster with what they installed, kills it, and removes them.
set -euo pipefail

step() { printf 'inside: %s\n' "$*"; }
die() {
    printf 'inside: FAILED: %s\n' "$*" >&2
    exit 1
}
debs=$1
bin=/usr/lib/postgresql/$2/bin
work=$(mktemp -d)
data=$work/data
marker=canary-arm64-Rt5v
postmaster=

as_postgres() { (cd "$work" && setpriv --reuid=postgres --regid=postgres --init-groups -- env PATH="$bin:$PATH" "$@"); }
sql() { as_postgres psql -X -A -t -q -v ON_ERROR_STOP=1 -h "$work" -d postgres -c "$1"; }
start() {
    as_postgres pgseal run -- pg_ctl -s -w -t 300 -D "$data" -l "$work/log" -o "-k $work -c listen_addresses=''" start </dev/null
    postmaster=$(head -n 1 "$data/postmaster.pid")
}
packages() { dpkg-query -W -f '${Package} ${db:Status-Status}\n' 'pgseal*' 'postgresql-*-pgseal' 2>/dev/null | sed -n 's/ installed$//p'; }
remove() {
    # shellcheck disable=SC2046 # names of packages
    [ -z "$(packages)" ] || dpkg --purge $(packages) >"$work/purge.log" 2>&1 || cat "$work/purge.log" >&2
}
clean() {
    local status=$?
    trap - EXIT
    [ "$status" = 0 ] || tail -n 15 "$work"/*log >&2 || true
    [ -z "$postmaster" ] || kill -QUIT "$postmaster" 2>/dev/null || true
    remove
    rm -rf "$work"
    exit "$status"
}
trap clean EXIT
chown postgres: "$work"

step "dpkg -i"
remove
find "$debs" -name '*.deb' ! -name '*-dbgsym_*' -exec dpkg -i {} + >"$work/install.log" 2>&1 || die "dpkg -i"
[ "$(packages | wc -l)" = 3 ] || die "installed: $(packages)"
[ "$(dpkg-query -W -f '${Architecture}' pgseal)" = arm64 ] || die "a package of another architecture"
[ -z "$(dpkg --verify pgseal)" ] || die "the files are not those of the package: $(dpkg --verify pgseal)"
pgseal --version
[ "$(pgseal provider list)" = $'aws-kms:\nkmip:\npkcs11:\ntpm2:\nvault:' ] || die "pgseal does not find its plugins"
[ "$(stat -c %U /var/lib/pgseal)" = postgres ] || die "/var/lib/pgseal is not the servers'"
pgseal --licenses | grep -c AWS-LC >/dev/null || die "pgseal --licenses does not name AWS-LC"
pgseal lab --help >/dev/null || die "pgseal does not find pgseal-lab"

step "a sealed cluster"
as_postgres pgseal key new -o main.key >/dev/null
as_postgres pgseal initdb -k -K "file:$work/main.key" -D "$data" >"$work/initdb.log" 2>&1 || die "pgseal initdb"
start
sql "CREATE TABLE t AS SELECT g, '$marker' || g AS v FROM generate_series(1, 10000) AS g; CREATE INDEX ON t (v)"
sql "CREATE EXTENSION pgseal"
sql "ALTER SYSTEM SET pgseal.provider = 'file:$work/main.key'"
sql "SELECT pg_reload_conf()" >/dev/null
for _ in $(seq 300); do [ -z "$(sql "SHOW pgseal.provider")" ] || break; sleep 0.2; done
sql "SELECT pgseal.create_domain('default')" >/dev/null
sql "CREATE TABLE s (id sealed_int8 PRIMARY KEY); INSERT INTO s VALUES (42)"
[ "$(sql "SELECT id FROM s")" = 42 ] || die "sealed columns"
sql "CHECKPOINT"
sql "INSERT INTO t SELECT g, '$marker' || g FROM generate_series(1, 5000) AS g"

step "kill -9, and recovery"
# shellcheck disable=SC2046 # process ids
kill -9 "$postmaster" $(cat "/proc/$postmaster/task/$postmaster/children")
while [ -d "/proc/$postmaster" ]; do sleep 0.2; done
if grep -rlaF "$marker" "$data"; then die "these files show rows"; fi
grep -aqF "$marker" "$0" || die "the search finds nothing at all"
start
[ "$(sql "SELECT count(*) FROM t")" = 15000 ] || die "rows after recovery"
[ "$(sql "SELECT id FROM s")" = 42 ] || die "sealed columns after recovery"
as_postgres pg_ctl -s -w -D "$data" stop
postmaster=
as_postgres pgseal verify "$data" >"$work/verify.log" 2>&1 || die "pgseal verify"
if as_postgres pg_ctl -s -w -D "$data" -l "$work/log" start >/dev/null 2>&1; then die "it starts without the library"; fi

step "dpkg --purge"
remove
[ -z "$(packages)" ] || die "still there: $(packages)"
for file in /usr/bin/pgseal /usr/lib/pgseal "/usr/lib/postgresql/$2/lib/pgseal_guard.so" /usr/share/doc/pgseal; do
    [ ! -e "$file" ] || die "the packages leave $file"
done
step passed
