# shellcheck shell=bash
# Sourced by run.sh. What leaves the server: dumps, files, WAL and logs, and their way back.

CANARY="canary-$RANDOM$RANDOM-plain"
createdb_() { sql "CREATE DATABASE $1"; }
in_db() { PGDATABASE=$1 "${@:2}"; }
# has TEXT PATH...: some file holds the text
has() { grep -rqaF -- "$1" "${@:2}"; }

createdb_ source
in_db source sql "CREATE EXTENSION pgseal; SELECT pgseal.create_domain('default'); SELECT pgseal.create_domain('vault');
    SELECT pgseal.create_type('vault_text', 'text', 'deterministic', 'vault'); SELECT pgseal.create_type('vault_id', 'int8', 'format', 'vault')" >/dev/null
# A session of its own: the ones above were logged, as statements are.
cat >"$work/fill.sql" <<SQL
SET log_statement = none; SET log_min_error_statement = panic;
CREATE TABLE person (id vault_id PRIMARY KEY, name vault_text UNIQUE, note sealed_text_random, born sealed_date, pay sealed_numeric(10,2));
CREATE TABLE visit (person vault_id REFERENCES person, at sealed_timestamptz);
INSERT INTO person SELECT i, '$CANARY name ' || i, '$CANARY note ' || i, date '1980-01-01' + i, i * 1.25 FROM generate_series(1, 200) AS i;
INSERT INTO visit SELECT 1 + i % 200, '2024-01-01 00:00+00'::timestamptz + i * interval '1 hour' FROM generate_series(1, 500) AS i;
CREATE ROLE backup LOGIN; GRANT pg_read_all_data TO backup; ALTER ROLE backup SET pgseal.format = 'sealed';
SELECT pgseal.grant_decrypt('vault', 'postgres');
CHECKPOINT;
SQL
ok "a table to dump" in_db source "$bin/psql" -qAtX -v ON_ERROR_STOP=1 -f "$work/fill.sql"
answer() { in_db "$1" sql "SELECT md5(string_agg(p::text, ',' ORDER BY p.id)) || (SELECT count(*) FROM person AS q JOIN visit ON visit.person = q.id) FROM person AS p"; }
wanted=$(answer source)

ok "no plain value in the data directory, WAL and logs" not has "$CANARY" "$work/main"
ok "no key of the provider either" not has "$(cat "$work/kek")" "$work/main"

ok "a plain dump decrypts, for who may" in_db source "$bin/pg_dump" -f "$work/plain.sql"
ok "and says so" has "$CANARY" "$work/plain.sql"
ok "a sealed dump needs no right to decrypt" env PGUSER=backup PGDATABASE=source "$bin/pg_dump" -Fc -f "$work/sealed.dump"
ok "a sealed dump as text" env PGUSER=backup PGDATABASE=source "$bin/pg_dump" -f "$work/sealed.sql"
ok "no plain value in a sealed dump" not has "$CANARY" "$work/sealed.sql"
ok "a dump by a role without the right is refused" says "permission denied to decrypt" \
    env PGUSER=backup PGOPTIONS="-c pgseal.format=plain" PGDATABASE=source "$bin/pg_dump" -f "$work/x.sql"

createdb_ back_plain
ok "a plain dump comes back, keys first" in_db back_plain "$bin/psql" -qX -v ON_ERROR_STOP=1 -f "$work/plain.sql"
ok "with the same answers" same "$(answer back_plain)" "$wanted"
createdb_ back_sealed
ok "a sealed dump comes back" env PGOPTIONS="-c pgseal.format=sealed" "$bin/pg_restore" -d back_sealed --exit-on-error "$work/sealed.dump"
ok "with the same answers" same "$(answer back_sealed)" "$wanted"
ok "keys and joins work there" same "$(in_db back_sealed sql "SELECT count(*) FROM person WHERE name = '$CANARY name 7' AND id = 7")" 1
createdb_ back_parallel
ok "a sealed dump comes back in parallel" env PGOPTIONS="-c pgseal.format=sealed" "$bin/pg_restore" -j 2 -d back_parallel --exit-on-error "$work/sealed.dump"
ok "with the same answers" same "$(answer back_parallel)" "$wanted"
createdb_ back_bare
ok "a sealed dump comes back without the rights in it" env PGOPTIONS="-c pgseal.format=sealed" "$bin/pg_restore" -x -d back_bare --exit-on-error "$work/sealed.dump"
in_db back_bare sql "CREATE ROLE stranger LOGIN; GRANT SELECT ON person TO stranger"
ok "and nobody may decrypt there" env PGUSER=stranger PGDATABASE=back_bare bash -c "$(declare -f says sql); bin='$bin'; says 'permission denied to decrypt' sql 'SELECT name FROM person'"
ok "but for superusers" same "$(answer back_bare)" "$wanted"
in_db back_bare sql "SELECT pgseal.grant_decrypt('vault', 'backup')"
ok "nor does everybody when one role may" env PGUSER=stranger PGDATABASE=back_bare bash -c "$(declare -f says sql); bin='$bin'; says 'permission denied to decrypt' sql 'SELECT name FROM person'"
createdb_ back_wrong
ok "a sealed dump is not taken for plain values" says "in the sealed form, and pgseal.format is plain" \
    env PGDATABASE=back_wrong "$bin/psql" -qX -v ON_ERROR_STOP=1 -f "$work/sealed.sql"

# Another cluster with another key: the dump is worth nothing there.
key "$work/other-kek"
start other "pgseal.provider = 'file:$work/other-kek'"
export PGPORT=5433
sql "CREATE ROLE backup"
PGOPTIONS="-c pgseal.format=sealed" "$bin/pg_restore" -d postgres "$work/sealed.dump" >"$work/restore.log" 2>&1 || true
ok "restored elsewhere, it opens with the provider's key only" says "wrong key-encryption key" sql "SELECT name FROM person"
ok "ciphertext can still be compared" same "$(sql 'SELECT count(*) FROM person JOIN visit ON person.id = visit.person')" 500
ok "the log says why" has "wrong key-encryption key" "$work/other/log"
"$bin/pg_ctl" -s -D "$work/other" -m fast stop
export PGPORT=5432

# The newest server here is the only one: an upgrade to itself exercises the same path.
start old "session_preload_libraries = ''"
export PGPORT=$((next_port - 1))
sql "CREATE EXTENSION pgseal; SELECT pgseal.create_domain('default'); SELECT pgseal.create_type('own', 'int4', 'format')" >/dev/null
sql "CREATE TABLE t (id own PRIMARY KEY, v sealed_text, n sealed_numeric); INSERT INTO t SELECT i, 'v' || i, i / 2.0 FROM generate_series(1, 100) AS i" >/dev/null
wanted=$(sql "SELECT md5(string_agg(t::text, ',' ORDER BY id)) FROM t")
"$bin/pg_ctl" -s -D "$work/old" -m fast stop
"$bin/initdb" -A trust -N --locale=C --encoding=UTF8 -U postgres -D "$work/new" >/dev/null
grep "^pgseal" "$work/old/postgresql.conf" >>"$work/new/postgresql.conf"
upgrade() { (cd "$work" && "$bin/pg_upgrade" -b "$bin" -B "$bin" -d "$work/old" -D "$work/new" -s "$work" -p "$PGPORT" -P "$PGPORT" -U postgres); }
ok "pg_upgrade" upgrade
printf "listen_addresses = ''\nunix_socket_directories = '%s'\nport = %s\n" "$work" "$PGPORT" >>"$work/new/postgresql.conf"
ok "starts afterwards" "$bin/pg_ctl" -s -w -D "$work/new" -l "$work/new/log" start
ok "with the same answers" same "$(sql "SELECT md5(string_agg(t::text, ',' ORDER BY id)) FROM t")" "$wanted"
ok "keys work" same "$(sql "SELECT v FROM t WHERE id = 42")" v42
"$bin/pg_ctl" -s -D "$work/new" -m fast stop
export PGPORT=5432
