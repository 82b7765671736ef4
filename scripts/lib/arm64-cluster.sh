# shellcheck shell=bash
# For deb-arm64-test-inside.sh and aarch64-smoke-inside.sh, which run in the root for arm64 as root:
# a sealed cluster of PostgreSQL $1 that is loaded, killed, recovered and verified. What the scripts
# have to put back is in their function "remove".

bin=/usr/lib/postgresql/$1/bin
work=$(mktemp -d)
data=$work/data
marker=canary-arm64-Rt5v
path=$bin:$PATH
postmaster=

step() { printf 'inside: %s\n' "$*"; }
die() {
    printf 'inside: FAILED: %s\n' "$*" >&2
    exit 1
}
as_postgres() { (cd "$work" && setpriv --reuid=postgres --regid=postgres --init-groups -- env PATH="$path" "$@"); }
sql() { as_postgres psql -X -A -t -q -v ON_ERROR_STOP=1 -h "$work" -d postgres -c "$1"; }
start() {
    as_postgres pgseal run -- pg_ctl -s -w -t 300 -D "$data" -l "$work/log" -o "-k $work -c listen_addresses=''" start </dev/null
    postmaster=$(head -n 1 "$data/postmaster.pid")
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

make_cluster() {
    step "a sealed cluster"
    as_postgres pgseal key new -o main.key >/dev/null
    as_postgres pgseal initdb -k -K "file:$work/main.key" -D "$data" >"$work/initdb.log" 2>&1 || die "pgseal initdb"
    start
    sql "CREATE TABLE t AS SELECT g, '$marker' || g AS v FROM generate_series(1, 10000) AS g; CREATE INDEX ON t (v)"
}

# Some rows are in the files of relations, some only in WAL.
kill_and_recover() {
    step "kill -9, and recovery"
    sql "CHECKPOINT"
    sql "INSERT INTO t SELECT g, '$marker' || g FROM generate_series(1, 5000) AS g"
    # shellcheck disable=SC2046 # process ids
    kill -9 "$postmaster" $(cat "/proc/$postmaster/task/$postmaster/children")
    while [ -d "/proc/$postmaster" ]; do sleep 0.2; done
    if grep -rlaF "$marker" "$data"; then die "these files show rows"; fi
    grep -aqF "$marker" "${BASH_SOURCE[0]}" || die "the search finds nothing at all"
    start
    [ "$(sql "SELECT count(*) FROM t")" = 15000 ] || die "rows after recovery"
}

stop_and_verify() {
    step "verify"
    as_postgres pg_ctl -s -w -D "$data" stop
    postmaster=
    as_postgres pgseal verify "$data" >"$work/verify.log" 2>&1 || die "pgseal verify"
    if as_postgres pg_ctl -s -w -D "$data" -l "$work/log" start >/dev/null 2>&1; then die "it starts without the library"; fi
}
