#!/bin/sh
# Tests pgseal_guard.so with the real server of PG_CONFIG, and with test/stub.c instead of
# libpgseal.so. Any user can run this; if root does, the servers run as the user postgres.
#
# SPDX-License-Identifier: Apache-2.0 OR MIT
set -u
# Messages are compared with English text.
LC_ALL=C
export LC_ALL

here=$(cd "$(dirname "$0")" && pwd)
PG_CONFIG=${PG_CONFIG:-pg_config}
bin=$("$PG_CONFIG" --bindir)
major=$("$PG_CONFIG" --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')
work=$(mktemp -d "${TMPDIR:-/tmp}/pgseal-guard.XXXXXX")
chmod 755 "$work"

if [ "$(id -u)" = 0 ]; then
    chown postgres "$work"
    as() { setpriv --reuid=postgres --regid=postgres --init-groups -- "$@"; }
else
    as() { "$@"; }
fi

# Whether a process exists. A zombie does not count.
is_there() { grep -q '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$1/status" 2>/dev/null; }
# Stops the server of a data directory by its pid, if one runs.
stop() {
    [ -f "$1/postmaster.pid" ] || return 0
    pid=$(head -n 1 "$1/postmaster.pid")
    kill -INT "$pid" 2>/dev/null
    tries=0
    while is_there "$pid" && [ $tries -lt 900 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
}
trap 'for data in "$work"/*/PG_VERSION; do stop "${data%/PG_VERSION}"; done; rm -rf "$work"' EXIT
cd "$work" || exit 1

passed=0
failed=0
# ok NAME COMMAND...: the command must succeed.
ok() {
    name=$1
    shift
    if "$@" >"$work/ok.out" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED: %s\n' "$name"
        sed 's/^/    /' "$work/ok.out" "$work/log" 2>/dev/null | tail -n 15
    fi
}
not() { ! "$@"; }
same() { [ "$1" = "$2" ] || { echo "'$1' is not '$2'"; false; }; }
logged() { grep -F -- "$1" "$work/log"; }
# Whether a start of DATA tells the library that there are no checksums.
logged_at_start_of() {
    start "$1" "$stub" && stop "$1" && logged "stub: no data checksums"
}

# Prints name, mode and hash of every file in a data directory.
fingerprint() { (cd "$1" && find . -printf '%p %y %m\n' | sort && find . -type f | sort | xargs sha256sum); }
# start DATA PRELOAD [OPTION...]: starts a server with a library preloaded ("" for none).
start() {
    data=$1 preload=$2
    shift 2
    : >"$work/log"
    chmod 666 "$work/log"
    as env LD_PRELOAD="$preload" STUB_ABI="${STUB_ABI:-4}" ${STUB_XTS:+STUB_XTS=1} ${STUB_CTR:+STUB_CTR=1} \
        "$bin/pg_ctl" -s -w -t 120 -D "$data" -l "$work/log" -o "$*" start
}
sql() { as "$bin/psql" -h "$work" -qAtX -d postgres -c "$1"; }
# refuses NAME DATA PRELOAD TEXT [OPTION...]: the start fails, says TEXT, and changes nothing.
refuses() {
    what=$1 where=$2 with=$3 says=$4
    shift 4
    before=$(fingerprint "$where")
    ok "$what: does not start" not start "$where" "$with" "$@"
    ok "$what: says why" logged "$says"
    ok "$what: says what to do" logged "HINT:"
    ok "$what: leaves no lock file" not test -e "$where/postmaster.pid"
    ok "$what: changes no file" same "$(fingerprint "$where")" "$before"
    stop "$where"
}

make -s -C "$here" PG_CONFIG="$PG_CONFIG" || exit 1
cp "$here/pgseal_guard.so" "$work/" || exit 1
cc -shared -fPIC -Wall -Wextra -Werror -o "$work/stub.so" "$here/test/stub.c" || exit 1
cc -shared -fPIC -Wall -Wextra -Werror -DWITHOUT_HELLO -o "$work/old.so" "$here/test/stub.c" || exit 1
stub=$work/stub.so

# init DATA [OPTION...]: a cluster that loads the guard module.
init() {
    data=$1
    shift
    as "$bin/initdb" -A trust -N -D "$data" "$@" >/dev/null || exit 1
    as tee -a "$data/postgresql.conf" >/dev/null <<CONF
listen_addresses = ''
unix_socket_directories = '$work'
shared_preload_libraries = '$work/pgseal_guard'
fsync = off
CONF
}
init "$work/sums" -k
if [ "$major" -ge 18 ]; then init "$work/nosums" --no-data-checksums; else init "$work/nosums"; fi

absent="this data directory is sealed by pgseal, and the library libpgseal.so is not loaded"
refuses "without the library" "$work/sums" "" "$absent"
before=$(fingerprint "$work/sums")
as "$bin/postgres" --single -D "$work/sums" postgres </dev/null >"$work/log" 2>&1
ok "single-user mode without the library: says why" logged "$absent"
ok "single-user mode without the library: changes no file" same "$(fingerprint "$work/sums")" "$before"

STUB_ABI=7
refuses "library of another version" "$work/sums" "$stub" \
    "libpgseal.so has interface version 7, and pgseal_guard.so needs version 4"
STUB_ABI=4
refuses "library without a function" "$work/sums" "$work/old.so" \
    "the library libpgseal.so has no function pgseal_guard_hello"
refuses "checksums and wal_log_hints off" "$work/nosums" "$stub" \
    "needs wal_log_hints or data checksums, and both are off"
STUB_CTR=1
refuses "CTR, checksums off" "$work/nosums" "$stub" "needs data checksums, and they are off" -c wal_log_hints=on
STUB_CTR=
refuses "full_page_writes off" "$work/sums" "$stub" \
    "needs full_page_writes, and it is off" -c full_page_writes=off
refuses "shared memory in files" "$work/sums" "$stub" \
    "cannot seal dynamic shared memory in files" -c dynamic_shared_memory_type=mmap
if [ "$major" -ge 18 ]; then
    refuses "io_uring" "$work/sums" "$stub" "with io_method = io_uring" -c io_method=io_uring
fi

ok "starts with library and checksums" start "$work/sums" "$stub"
ok "tells the library that it is there" logged "stub: hello from the guard"
ok "logs the library's line once" same "$(grep -c 'LOG:  stub: the line of the start' "$work/log")" 1
auto=$(cat "$work/sums/postgresql.auto.conf")
ok "ALTER SYSTEM cannot switch full_page_writes off" \
    not sql "ALTER SYSTEM SET full_page_writes = off"
ok "ALTER SYSTEM: says why" logged "full_page_writes cannot be switched off"
ok "ALTER SYSTEM: wrote nothing" same "$(cat "$work/sums/postgresql.auto.conf")" "$auto"
ok "ALTER SYSTEM SET full_page_writes = on is accepted" \
    sql "ALTER SYSTEM SET full_page_writes = on"
sql "ALTER SYSTEM RESET full_page_writes"
: >"$work/log"
conf=$(cat "$work/sums/postgresql.conf")
# The new work_mem shows that the reload has happened.
printf "full_page_writes = off\nwork_mem = '7MB'\n" | as tee -a "$work/sums/postgresql.conf" >/dev/null
sql "SELECT pg_reload_conf()" >/dev/null
tries=0
until [ "$(sql 'SHOW work_mem')" = 7MB ] || [ $tries -ge 600 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
ok "a reload happened" test $tries -lt 600
ok "a reload cannot switch full_page_writes off" same "$(sql 'SHOW full_page_writes')" on
ok "a reload: says why" logged "full_page_writes cannot be switched off"
stop "$work/sums"
refuses "full_page_writes off in the file" "$work/sums" "$stub" "needs full_page_writes, and it is off"
printf '%s\n' "$conf" | as tee "$work/sums/postgresql.conf" >/dev/null

ok "pg_upgrade may start a cluster with full_page_writes off" \
    start "$work/sums" "$stub" -b -c full_page_writes=off
stop "$work/sums"

ok "pg_upgrade may start a cluster with neither checksums nor wal_log_hints" \
    start "$work/nosums" "$stub" -b
stop "$work/nosums"

# A standby of a primary that logs no hint bits; pg_control says so after a crash.
standby="the WAL that is to be replayed here was written with wal_log_hints = off"
STUB_XTS=1
ok "a server without wal_log_hints" start "$work/nosums" "$stub"
pid=$(head -n 1 "$work/nosums/postmaster.pid")
kill -QUIT "$pid"
while is_there "$pid"; do sleep 0.1; done
STUB_XTS=
as touch "$work/nosums/standby.signal"
refuses "a standby of it" "$work/nosums" "$stub" "$standby" -c wal_log_hints=on
as rm "$work/nosums/standby.signal"

ok "starts without checksums, with wal_log_hints" start "$work/nosums" "$stub" -c wal_log_hints=on
ok "tells the library that there are no checksums" logged "stub: no data checksums"
ok "without checksums full_page_writes stays on, too" not sql "ALTER SYSTEM SET full_page_writes = off"
stop "$work/nosums"
ok "with checksums the library is not told so" not logged_at_start_of "$work/sums"

STUB_XTS=1
ok "XTS needs no checksums" start "$work/nosums" "$stub"
ok "XTS leaves full_page_writes alone" sql "ALTER SYSTEM SET full_page_writes = off"
stop "$work/nosums"
ok "XTS starts with full_page_writes off" start "$work/nosums" "$stub"
stop "$work/nosums"

STUB_PLAIN=1
export STUB_PLAIN
ok "XTS: a plain cluster has no line" start "$work/nosums" "$stub"
ok "XTS: a plain cluster's log does not have it" not logged "stub: the line of the start"
stop "$work/nosums"
unset STUB_PLAIN
ok "with the logging collector" start "$work/nosums" "$stub" -c logging_collector=on
stop "$work/nosums"
ok "the collector has the library's line, once" \
    same "$(cat "$work"/nosums/log/*.log | grep -c 'LOG:  stub: the line of the start')" 1
ok "what is not the collector's has it not" not logged "stub: the line of the start"

as sed -i '/^shared_preload_libraries/d' "$work/nosums/postgresql.conf"
ok "a server without the guard module starts" start "$work/nosums" ""
ok "LOAD is refused" not sql "LOAD '$work/pgseal_guard'"
ok "LOAD: says why" logged "pgseal_guard can only be loaded when the server starts"
stop "$work/nosums"

printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
