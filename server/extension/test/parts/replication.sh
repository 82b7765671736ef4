# shellcheck shell=bash
# Sourced by run.sh. Logical replication: plain values under the subscriber's own key, or ciphertext
# under the same keys.

start subscriber "pgseal.provider = 'file:$work/sub-kek'"
key "$work/sub-kek"
sub_port=$((next_port - 1))
sub() { PGPORT=$sub_port sql "$@"; }
# caught_up: the subscriber has what the publisher has sent
caught_up() {
    local target
    target=$(sql "SELECT pg_current_wal_lsn()")
    for _ in $(seq 1 900); do
        [ "$(sql "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= '$target' AND application_name = '$1'")" = 1 ] && return 0
        sleep 0.1
    done
    return 1
}

# copied: the subscriber has the rows that were there before it
copied() {
    for _ in $(seq 1 900); do
        [ "$(sub "SELECT count(*) FROM pg_subscription_rel WHERE srsubstate = 'r'")" = 1 ] && return 0
        sleep 0.1
    done
    return 1
}

sql "CREATE DATABASE pub"
export PGDATABASE=pub
sql "CREATE EXTENSION pgseal; SELECT pgseal.create_domain('default')" >/dev/null
PGDATABASE=postgres sub "CREATE EXTENSION pgseal; SELECT pgseal.create_domain('default')" >/dev/null
ddl="CREATE TABLE r (id sealed_int8 PRIMARY KEY, t sealed_text, n sealed_numeric(8,2), x sealed_text_random)"
sql "$ddl; INSERT INTO r SELECT i, 't' || i, i, 'x' || i FROM generate_series(1, 50) AS i; CREATE PUBLICATION p FOR TABLE r"
PGDATABASE=postgres sub "$ddl"
ok "subscribe" env PGDATABASE=postgres PGPORT="$sub_port" "$bin/psql" -qX -v ON_ERROR_STOP=1 \
    -c "CREATE SUBSCRIPTION s_plain CONNECTION 'host=$work port=5432 dbname=pub user=postgres' PUBLICATION p"
ok "the rows of before arrive" in_db postgres copied
sql "UPDATE r SET t = 'changed', id = 1000 WHERE id = 1; DELETE FROM r WHERE id = 2; INSERT INTO r VALUES (60, 'new', 1.5, 'random')"
ok "changes arrive" caught_up s_plain
content="SELECT md5(string_agg(r::text, ',' ORDER BY id)) FROM r"
ok "with the same values under another key" same "$(PGDATABASE=postgres sub "$content")" "$(sql "$content")"
ok "which can be looked up there" same "$(PGDATABASE=postgres sub "SELECT t FROM r WHERE id = 1000")" changed
PGDATABASE=postgres sub "DROP SUBSCRIPTION s_plain" 2>/dev/null

# Ciphertext: the publisher's role has no right to decrypt, and the subscriber the same keys.
sql "CREATE ROLE repl LOGIN REPLICATION; GRANT SELECT ON r TO repl; ALTER ROLE repl SET pgseal.format = 'sealed'"
PGDATABASE=postgres sub "CREATE DATABASE mirror" >/dev/null
export PGDATABASE=mirror
sub "CREATE EXTENSION pgseal"
sub "ALTER SYSTEM SET pgseal.provider = 'file:$work/kek'"
sub "SELECT pg_reload_conf()" >/dev/null
for table in domain key; do
    PGDATABASE=pub sql "COPY _pgseal.$table TO STDOUT" | PGPORT=$sub_port "$bin/psql" -qX -c "COPY _pgseal.$table FROM STDIN"
done
sub "$ddl"
sub "ALTER DATABASE mirror SET pgseal.format = 'sealed'"
ok "subscribe to ciphertext" env PGPORT="$sub_port" "$bin/psql" -qX -v ON_ERROR_STOP=1 \
    -c "CREATE SUBSCRIPTION s_sealed CONNECTION 'host=$work port=5432 dbname=pub user=repl' PUBLICATION p"
ok "the rows of before arrive" copied
PGDATABASE=pub sql "INSERT INTO r VALUES (70, 'sealed all the way', 2.5, 'random'); UPDATE r SET n = 9 WHERE id = 3"
ok "changes arrive" env PGDATABASE=pub bash -c "$(declare -f sql caught_up); bin='$bin'; caught_up s_sealed"
ok "with the same values" same "$(PGOPTIONS='-c pgseal.format=plain' sub "$content")" "$(PGDATABASE=pub sql "$content")"
ok "the publisher's role cannot read them" says "permission denied to decrypt" env PGUSER=repl PGDATABASE=pub PGOPTIONS='-c pgseal.format=plain' \
    "$bin/psql" -qAtX -v ON_ERROR_STOP=1 -c "SELECT t FROM r"
sub "DROP SUBSCRIPTION s_sealed" 2>/dev/null
"$bin/pg_ctl" -s -D "$work/subscriber" -m fast stop
export PGDATABASE=postgres
