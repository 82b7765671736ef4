# shellcheck shell=bash
# Sourced by run.sh. Keys that are missing or wrong, passphrases, and many sessions at once.

sql "CREATE DATABASE keys"
export PGDATABASE=keys
sql "CREATE EXTENSION pgseal; SELECT pgseal.create_domain('default')" >/dev/null
sql "CREATE TABLE t (id sealed_int8 PRIMARY KEY, v sealed_text, x sealed_text_random); INSERT INTO t SELECT i, 'v' || i, 'x' || i FROM generate_series(1, 1000) AS i"

with() { PGOPTIONS=$1 sql "$2"; }
ok "no provider" says "pgseal does not know where the key of the column keys comes from" with "-c pgseal.provider=" "SELECT id FROM t"
ok "no helper" says "could not be run" with "-c pgseal.helper=/nowhere/pgseal" "SELECT id FROM t"
ok "a helper that is another program" says "is not the program pgseal" with "-c pgseal.helper=/bin/true" "SELECT id FROM t"
data=$(sql "SHOW data_directory")
printf '#!/bin/sh\ntouch %s\n' "$work/planted-mark" >"$work/planted"
mkdir "$data/planted.d" "$work/linked"
install -m 755 "$work/planted" "$data/planted.d/pgseal"
ln -s "$data/planted.d/pgseal" "$work/linked/pgseal"
for helper_path in "$data/planted.d/pgseal" "$work/linked/pgseal" planted.d/pgseal; do
    ok "a helper in the data directory" says "is not the program pgseal" with "-c pgseal.helper=$helper_path" "SELECT id FROM t"
done
ok "a command that only a setting names" says "PGSEAL_COLUMN_PROVIDER" with "-c pgseal.provider=command:touch\\ $work/planted-mark" "SELECT id FROM t"
ok "nothing of it was run" same "$(ls "$work/planted-mark" 2>/dev/null)" ""
rm -r "$data/planted.d"
ok "a missing key" says "there is no key file" with "-c pgseal.provider=file:$work/nothing" "SELECT id FROM t"
key "$work/wrong-kek"
ok "a wrong key" says "wrong key-encryption key" with "-c pgseal.provider=file:$work/wrong-kek" "SELECT id FROM t"
cp "$work/kek" "$work/open-kek"
chmod 644 "$work/open-kek"
ok "a key file that others can read" says "gave no column keys" with "-c pgseal.provider=file:$work/open-kek" "SELECT id FROM t"
ok "without keys, ciphertext is still counted, joined and grouped" same \
    "$(with "-c pgseal.provider=" "SELECT count(*), count(DISTINCT v) FROM t JOIN t AS u USING (id, v)")" "1000|1000"
ok "the session that failed works once the key is there" same "$(sql "SELECT v FROM t WHERE id = 3")" v3

# Keys and remembered values are in pages that are locked, and in no core dump and no child: kB that
# have one of `flags` (proc_pid_smaps(5): lo, dd, dc) in all ours, in a session that has opened and
# sealed many values. `limit`: RLIMIT_MEMLOCK.
secret_kb() {
    local flags=$1 limit=$2 query=$3
    "$bin/psql" -qAtX -v ON_ERROR_STOP=1 <<SQL
SELECT pg_backend_pid() AS pid \gset
\setenv BACKEND :pid
\! prlimit --memlock=$limit:$limit --pid \$BACKEND
$query;
\! awk '/^Size:/ { kb = \$2 } /^VmFlags:/ && / dd/ && / dc/ && / $flags/ { sum += kb } END { print sum + 0 }' /proc/\$BACKEND/smaps
SQL
}
memlock_kb=$(ulimit -H -l)
many="SELECT count(id::int8) = 1000 AND count(v::text) = 1000 AND bool_and(v = ('v' || id::int8)::sealed_text) FROM t"
ok "keys have a page that is in no core dump" same "$(secret_kb dd 1000000 "SELECT id FROM t WHERE id = 5")" "5
4"
if [ "$memlock_kb" = unlimited ] || [ "$memlock_kb" -ge 1024 ]; then
    ok "which is locked" same "$(secret_kb lo 1000000 "SELECT id FROM t WHERE id = 5")" "5
4"
    # The page of the keys, 256 kB of numbers, and 196 kB each of strings that were opened and
    # strings that were sealed.
    ok "so are the values that a backend remembers" same "$(secret_kb lo 1000000 "$many")" "t
$((4 + 256 + 196 + 196))"
else
    warn "RLIMIT_MEMLOCK is $memlock_kb kB here: not tried what is locked below 1 MB"
fi
ok "without the right to lock pages everything works" same "$(secret_kb dd 0 "$many")" "t
$((4 + 256 + 196 + 196))"
ok "with nothing locked" same "$(secret_kb lo 0 "$many")" "t
0"
ok "which a log of details says" grep -q "could not be locked in memory" <(PGOPTIONS='-c client_min_messages=debug1' secret_kb dd 0 "$many" 2>&1)
ok "they go with the catalog that they are of" same "$(secret_kb dd 1000000 "$many; UPDATE _pgseal.domain SET on_denied = on_denied; SELECT id FROM t WHERE id = 5")" "t
5
4"

# A passphrase of the connection.
spoken() { PGOPTIONS="-c pgseal.passphrase=$1" sql "$2"; }
ok "a domain under a passphrase" spoken shibboleth "SELECT pgseal.create_domain('spoken', 'passphrase'); SELECT pgseal.create_type('spoken_text', 'text', 'deterministic', 'spoken')"
ok "stores with it" spoken shibboleth "CREATE TABLE s (v spoken_text PRIMARY KEY); INSERT INTO s VALUES ('open'), ('shut')"
ok "reads with it" same "$(spoken shibboleth "SELECT v FROM s WHERE v = 'open'")" open
ok "another one does not open it" says "wrong passphrase for key domain spoken" spoken simsalabim "SELECT v FROM s"
ok "none does not" says "this connection gave none" sql "SELECT v FROM s"
ok "parallel workers have its key" same "$(spoken shibboleth "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
    SELECT count(*) FROM s WHERE v LIKE '%e%'")" 1
ok "the passphrase is in no log and no file" not grep -rqaF shibboleth "$work/main"
ok "and in no view" same "$(spoken shibboleth "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%shibb' || 'oleth%'; SELECT count(*) FROM pg_settings WHERE setting LIKE '%shibb' || 'oleth%'")" "0
0"

# Many sessions, while keys are added and rotated: no wrong answer, and nothing but the error that
# says so.
pids=()
for i in 1 2 3 4; do
    (for _ in $(seq 1 60); do
        n=$((RANDOM % 1000 + 1))
        "$bin/psql" -qAtX -c "SELECT v = 'v$n' AND x = 'x$n' FROM t WHERE id = $n" -c "UPDATE t SET x = 'x$n' WHERE id = $n" 2>&1
    done) >"$work/load.$i" &
    pids+=($!)
done
"$bin/psql" -qAtX -f - >"$work/long" 2>&1 <<'SQL' &
SELECT count(*) FROM t; SELECT pg_sleep(0.5);
SELECT bool_and(v = 'v' || id::text) FROM t WHERE id < 50; SELECT pg_sleep(1);
SELECT bool_and(v = 'v' || id::text) FROM t WHERE id < 50; SELECT pg_sleep(2);
SELECT bool_and(v = 'v' || id::text) FROM t WHERE id < 50;
SQL
pids+=($!)
for _ in 1 2 3; do
    ok "add a key meanwhile" sql "SELECT pgseal.add_key('default')"
    ok "rotate meanwhile" sql "CALL pgseal.rotate('default', 2)"
    sleep 0.3
done
wait "${pids[@]}"
ok "no wrong answer meanwhile" not grep -hE '^f$' "$work"/load.[0-9] "$work/long"
ok "and some right ones" grep -qhE '^t$' "$work"/load.[0-9]
ok "no other error than that of the rotation" same "$(cat "$work"/load.[0-9] "$work/long" | grep ERROR | grep -v 'while the key of key domain default rotates' | head -n 3)" ""
ok "all values are whole afterwards" same "$(sql "SELECT count(*) FROM t WHERE v = 'v' || id::text AND x = 'x' || id::text")" 1000
export PGDATABASE=postgres
