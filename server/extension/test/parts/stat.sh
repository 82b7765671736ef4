# shellcheck shell=bash
# Sourced by run.sh. Counters: of the session everywhere, of all processes on a sealed cluster.

counted() { sql "$1; SELECT session_sealed || ' ' || session_opened || ' ' || session_failed || ' ' || coalesce(sealed::text, 'unknown') FROM pgseal.stat_columns"; }
sql "CREATE DATABASE stat"
export PGDATABASE=stat
sql "CREATE EXTENSION pgseal; SELECT pgseal.create_domain('default'); CREATE TABLE t (id sealed_int8, v sealed_text_random);
    INSERT INTO t SELECT i, 'v' || i FROM generate_series(1, 100) AS i" >/dev/null
ok "a session counts its values" same "$(counted "SELECT count(v::text) FROM t")" "100
0 100 0 unknown"
ok "sealing counts, too" same "$(counted "INSERT INTO t SELECT i, 'v' || i FROM generate_series(1, 7) AS i")" "14 0 0 unknown"
ok "a server that is not sealed has no counters of files" same "$(sql "SELECT count(*), pgseal.counting_since() IS NULL FROM pgseal.stat_io")" "0|t"
ok "nor keys of files" says "it does not run with pgseal_guard" sql "SELECT pgseal.reseal('t')"
export PGDATABASE=postgres

# The same on a sealed cluster; where the modules of the project are built.
guard=$PGSEAL_ROOT/target/guard/$major/pgseal_guard.so
[ -e "$guard" ] || die "$guard is missing; run 'make build' first"
cp "$guard" "$modules/"
pgseal() { PATH=$bin:$PATH "$helper" "$@"; }
sealed=$work/sealed port=$next_port
next_port=$((next_port + 1))
pgseal initdb -k -K "file:$work/kek" -D "$sealed" -- -A trust -N --locale=C --encoding=UTF8 -U postgres >/dev/null
cat >>"$sealed/postgresql.conf" <<CONF
listen_addresses = ''
unix_socket_directories = '$work'
port = $port
fsync = off
shared_buffers = 1MB
pgseal.provider = 'file:$work/kek'
CONF
# Without pgseal.helper the extension finds the program of the library that the server has loaded.
# This library has a place of its own, so that it is not one that is installed on this machine.
mkdir -p "$work/prefix/bin" "$work/prefix/lib/pgseal"
cp "$helper" "$work/prefix/bin/pgseal"
cp "$PGSEAL_ROOT/target/release/libpgseal.so" "$work/prefix/lib/pgseal/"
ok "a sealed cluster with the extension" env PGSEAL_LIBRARY="$work/prefix/lib/pgseal/libpgseal.so" PATH="$bin:$PATH" \
    "$helper" run -- "$bin/pg_ctl" -s -w -t 120 -D "$sealed" -l "$sealed.log" start
at() { PGPORT=$port sql "$@"; }
at "CREATE EXTENSION pgseal; SELECT pgseal.create_domain('default'); CREATE TABLE t (id sealed_int8, v sealed_text_random)" >/dev/null
ok "no helper is set" same "$(at "SHOW pgseal.helper")" ""
at "INSERT INTO t SELECT i, 'v' || i FROM generate_series(1, 1000) AS i"
at "CHECKPOINT"
ok "counters of all sessions" same "$(at "SELECT sealed, opened, failed FROM pgseal.stat_columns")" "2000|0|0"
form=$(at "SET pgseal.format = sealed; SELECT v FROM t LIMIT 1")
case "$form" in *0000) form=${form%????}1111 ;; *) form=${form%????}0000 ;; esac
ok "a changed value counts as failed" says "cannot open a value" at "SET pgseal.format = sealed; CREATE TEMP TABLE f (v sealed_text_random);
    INSERT INTO f VALUES ('$form'); RESET pgseal.format; SELECT v FROM f"
ok "in all sessions" same "$(at "SELECT failed FROM pgseal.stat_columns")" 1
ok "blocks of each class" same "$(at "SELECT string_agg(class, ' ' ORDER BY class) FROM pgseal.stat_io WHERE class IN ('relation', 'wal', 'slru') AND sealed_blocks > 0 AND sealed_bytes >= sealed_blocks AND failed_blocks = 0")" "relation slru wal"
at "CREATE ROLE nobody; CREATE ROLE watcher; GRANT pg_monitor TO watcher"
ok "anybody may look at the counters of files" same "$(at "SET ROLE nobody; SELECT count(*) > 10 FROM pgseal.stat_io")" t
# Sums that move with what others do are for those who may read all statistics.
sums() { at "SET ROLE $1; SELECT session_sealed, session_opened, session_failed, sealed, opened, failed FROM pgseal.stat_columns"; }
ok "not at what other sessions do with values" same "$(sums nobody)" "0|0|0|||"
ok "nor past the view" says "permission denied for schema _pgseal" at "SET ROLE nobody; SELECT * FROM _pgseal.stat_columns()"
ok "members of pg_monitor may" same "$(sums watcher)" "0|0|0|2000|1|1"
ok "since the server started" same "$(at "SELECT pgseal.counting_since() BETWEEN pg_postmaster_start_time() - interval '5 min' AND now()")" t
ok "the program says the same" same "$(pgseal status --counters --json "$sealed" | sed -nE 's/.*"(sealed|failed)_values": ([0-9]+).*/\1 \2/p' | sort)" "failed 1
sealed 2000"

# New file keys, which the guard module makes.
at "SELECT pgseal.reseal('t')" >/dev/null
for ((second = 0; second < 120; second++)); do
    [ "$(at "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pgseal reseal'")" != 0 ] || break
    sleep 1
done
ok "a table has a new file key" same "$(at "SELECT DISTINCT file_key, resealing, pages_left FROM pgseal.file_keys('t')")" "2|f|"
ok "and its rows" same "$(at "SELECT count(v::text) FROM t")" 1000
ok "nothing is left" same "$(at "SELECT count(*) FROM pgseal.reseal_progress")" 0
ok "a named argument" same "$(at "SELECT pgseal.reseal(begun_only => true) > 0")" t
ok "not for everybody" says "permission denied for function" at "SET ROLE nobody; SELECT pgseal.reseal('t')"
"$bin/pg_ctl" -s -w -D "$sealed" -m fast stop
