#!/usr/bin/env bash
# run.sh test|memcheck|drivers: tests of the extension on a throw-away server, by an ordinary user,
# from the project's directory. The server is a private copy of the installation of PG_CONFIG with
# the extension added, so nothing is written outside $TMPDIR.
set -euo pipefail
. scripts/lib.sh

action=${1:-test}
config=${PG_CONFIG:-$(pg_configs | tail -n 1)}
major=$(pg_major "$config")
here=server/extension/test
results=$PGSEAL_ROOT/build/results/extension-$major
work=$(mktemp -d "${TMPDIR:-/tmp}/pgx.XXXXXX")
[ "$(id -u)" != 0 ] || die "servers do not run as root: scripts/as-user.sh server/extension/test/run.sh"
# Messages are compared with English text.
export LC_ALL=C
unset PGOPTIONS

finish() {
    local status=$?
    trap - EXIT
    stop_servers_below "$work"
    rm -rf "$work"
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM

# A copy of the installation: PostgreSQL finds its files relative to its programs.
root=$work/root
bin=$root$("$config" --bindir)
# A build whose libraries are looked for beside its programs needs to be told where they are.
libs=$(ldd "$("$config" --bindir)/psql" | sed -nE 's|.*=> (/.*)/libpq[^/]*\.so.*|\1|p' | head -n 1)
case "$libs" in
'' | /lib* | /usr/lib*) ;;
*)
    # One that has its own C library knows all its paths, and no other program can use it.
    [ -e "$libs/libc.so.6" ] || export LD_LIBRARY_PATH=$libs
    ;;
esac
mkdir -p "$bin" "$root$("$config" --pkglibdir)" "$root$("$config" --sharedir)"
cp -r "$("$config" --bindir)/." "$bin/"
cp -rs "$("$config" --pkglibdir)/." "$root$("$config" --pkglibdir)/"
cp -rs "$("$config" --sharedir)/." "$root$("$config" --sharedir)/"
# The copy consists of links. What an installed pgseal leaves there is put there, read-only, so that
# each run shows that the tests neither use it nor write to it; then all of it is removed.
printf 'an installed pgseal\n' >"$work/installed"
chmod 444 "$work/installed"
modules=$root$("$config" --pkglibdir)
extensions=$root$("$config" --sharedir)/extension
for name in "$modules"/pgseal.so "$modules"/pgseal_guard.so "$extensions"/pgseal.control "$extensions"/pgseal--{1.0,0.9--1.0}.sql; do
    ln -sf "$work/installed" "$name"
done
rm -f "$modules"/pgseal* "$extensions"/pgseal*
module=target/extension/$major/pgseal.so
cp "$module" "$modules/pgseal.so"
cp server/extension/pgseal.control server/extension/pgseal--*.sql "$extensions/"
helper=$PGSEAL_ROOT/target/release/pgseal
[ -x "$helper" ] || die "$helper is missing; run 'make build' first"

# key FILE: a new key file
key() {
    (umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$1")
}

# start NAME [OPTION...]: a new cluster in $work/NAME, listening in $work on port 5432, 5433, ...
next_port=5432
start() {
    local data=$work/$1 port=$next_port
    shift
    next_port=$((next_port + 1))
    "$bin/initdb" -A trust -N --locale=C --encoding=UTF8 -U postgres -D "$data" >/dev/null
    cat >>"$data/postgresql.conf" <<CONF
listen_addresses = '${LISTEN:-}'
unix_socket_directories = '$work'
port = $port
fsync = off
wal_level = logical
max_prepared_transactions = 2
log_statement = all
log_line_prefix = '%a '
autovacuum = off
wal_sender_timeout = 0
wal_receiver_timeout = 0
pgseal.provider = 'file:$work/kek'
pgseal.helper = '$helper'
CONF
    printf '%s\n' "$@" >>"$data/postgresql.conf"
    "$bin/pg_ctl" -s -w -t 120 -D "$data" -l "$data/log" start
}

export PGHOST=$work PGUSER=postgres PGDATABASE=postgres
passed=0
failed=0
# ok NAME COMMAND...: the command must succeed.
ok() {
    local name=$1
    shift
    if "$@" >"$work/ok.out" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED: %s\n' "$name"
        tail -n 20 "$work/ok.out" | sed 's/^/    /'
    fi
}
not() { ! "$@"; }
same() { [ "$1" = "$2" ] || { printf '%s\n' "'$1' is not '$2'"; return 1; }; }
sql() { "$bin/psql" -qAtX -v ON_ERROR_STOP=1 -c "$1" "${@:2}"; }
# says TEXT COMMAND...: the command fails and says TEXT
says() {
    local text=$1 out
    shift
    if out=$("$@" 2>&1); then
        printf 'did not fail: %s\n' "$out"
        return 1
    fi
    grep -F -- "$text" <<<"$out" >/dev/null || { printf '%s\n' "$out"; return 1; }
}

key "$work/kek"
export PGPORT=5432

regress() {
    local pg_regress tests
    pg_regress=$(dirname "$("$config" --pgxs)")/../test/regress/pg_regress
    mkdir -p "$results"
    tests=$(cat "$here/schedule")
    if [ ! -e "$("$config" --pkglibdir)/pgcrypto.so" ]; then
        warn "PostgreSQL $major has no pgcrypto here: not compared with it"
        tests=${tests/ pgcrypto/}
    fi
    # shellcheck disable=SC2086 # a list of names
    if "$pg_regress" --use-existing --dbname=contrib_regression --host="$work" --port=5432 --user=postgres --bindir="$bin" \
        --inputdir="$here" --outputdir="$results" $tests; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        [ -e "$results/regression.diffs" ] && head -n 200 "$results/regression.diffs"
    fi
}

case "$action" in
test)
    start main
    sql "CREATE DATABASE contrib_regression"
    regress
    for part in "$here"/parts/*.sh; do
        # shellcheck disable=SC1090 # the parts stand beside this file
        . "$part"
    done
    ;;
memcheck)
    # shellcheck source=/dev/null
    . "$here/memcheck.sh"
    ;;
drivers)
    # shellcheck source=/dev/null
    . "$here/drivers.sh"
    ;;
esac
printf 'extension, PostgreSQL %s: %d passed, %d failed\n' "$major" "$passed" "$failed"
[ "$failed" -eq 0 ]
