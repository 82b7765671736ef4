# shellcheck shell=bash
# Sourced by run.sh. Random bytes into every receive function through COPY BINARY: errors, never a
# crash, and what is stored can be read back or refused.

sql "CREATE DATABASE fuzz"
export PGDATABASE=fuzz
sql "CREATE EXTENSION pgseal; SELECT pgseal.create_domain('default')" >/dev/null
u16() { printf '%b' "\\x$(printf %02x $(($1 >> 8 & 255)))\\x$(printf %02x $(($1 & 255)))"; }
u32() { u16 $(($1 >> 16)); u16 $(($1 & 65535)); }
# one LEN [PREFIX]: a binary COPY file of one row with one random field
one() {
    local prefix=${2:-}
    printf 'PGCOPY\n\377\r\n\0'
    u32 0
    u32 0
    u16 1
    u32 $(($1 + ${#prefix}))
    printf '%s' "$prefix"
    head -c "$1" /dev/urandom
    u16 65535
}
survived=0
stored=0
server=$(head -n 1 "$work/main/postmaster.pid")
for type in $(sql "SELECT type FROM pgseal.types ORDER BY 1"); do
    sql "CREATE TABLE f (v $type)"
    for format in plain sealed; do
        for len in 0 1 3 4 8 12 16 17 20 29 33 40 100; do
            file=$work/fuzz.$format.$len
            if [ $format = sealed ]; then one $len $'PGSEAL1\n' >"$file"; else one $len >"$file"; fi
            printf 'SET pgseal.format = %s;\n\\copy f FROM %s (FORMAT binary)\n' $format "'$file'" >>"$work/fuzz.sql"
        done
    done
    printf 'SELECT v FROM f LIMIT 1;\n' >>"$work/fuzz.sql"
    "$bin/psql" -qAtX -f "$work/fuzz.sql" >"$work/fuzz.out" 2>&1 || true
    stored=$((stored + $(sql "SELECT count(*) FROM f")))
    grep -q 'server closed the connection\|internal error\|XX000' "$work/fuzz.out" && { failed=$((failed + 1)); echo "FAILED: fuzz of $type"; tail -n 5 "$work/fuzz.out"; }
    survived=$((survived + 26))
    rm "$work/fuzz.sql"
    sql "DROP TABLE f"
done
ok "$survived random fields did not stop the server" same "$(head -n 1 "$work/main/postmaster.pid")" "$server"
ok "no backend crashed" not grep -q 'was terminated by signal' "$work/main/log"
ok "some were valid values" test "$stored" -gt 20
# What COPY BINARY writes, it reads again.
sql "CREATE TABLE b (a sealed_int4, b sealed_int8, c sealed_date, d sealed_numeric, e sealed_text, f sealed_bytea_random, g sealed_uuid, h sealed_numeric_wide, i sealed_timestamptz);
    INSERT INTO b SELECT i, i * 1000000007::int8, date '2000-01-01' + i, (i / 8.0)::numeric(10,3), repeat('e', i), decode(md5(i::text), 'hex'), gen_random_uuid(), i * 1e30, now() FROM generate_series(1, 50) AS i; CREATE TABLE b2 (LIKE b)"
for format in plain sealed; do
    PGOPTIONS="-c pgseal.format=$format" sql "COPY b TO STDOUT (FORMAT binary)" >"$work/b.bin"
    ok "COPY BINARY, $format, comes back" env PGOPTIONS="-c pgseal.format=$format" "$bin/psql" -qX -v ON_ERROR_STOP=1 -c "\\copy b2 FROM '$work/b.bin' (FORMAT binary)"
    ok "unchanged" same "$(sql "SELECT count(*) FROM b JOIN b2 USING (a, b, c, d, e, g, h, i) WHERE b.f::bytea = b2.f::bytea")" 50
    sql "TRUNCATE b2"
done
export PGDATABASE=postgres
