# shellcheck shell=bash
# Sourced by run.sh. Every type and path of the C code in a server of one process under valgrind: no
# error in the module's frames. (AddressSanitizer cannot be preloaded into the distribution's
# server.)

start main
sql "CREATE EXTENSION pgseal; SELECT pgseal.create_domain('default')" >/dev/null
types=$(sql "SELECT type FROM pgseal.types ORDER BY 1")
"$bin/pg_ctl" -s -D "$work/main" -m fast stop
{
    for type in $types; do
        case $type in
        *bool*) values="('t'), ('f')" ;;
        *int* | *float*) values="('1'), ('-5'), ('2147483647')" ;;
        *numeric*) values="('1.50'), ('-0.001'), ('NaN'), ('123456789012.5')" ;;
        *date* | *timestamp*) values="('2024-02-29'), ('infinity'), ('1815-12-10')" ;;
        *uuid*) values="('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11')" ;;
        *json*) values="('{\"a\": [1]}')" ;;
        *) values="(''), ('a'), (repeat('x', 100)::text), (repeat('y', 5000)::text)" ;;
        esac
        [ "${type%bytea*}" = "$type" ] || values="(''), ('\\x00ff')"
        echo "CREATE TABLE x (v $type);"
        echo "INSERT INTO x VALUES $values;"
        echo "SELECT v FROM x;"
        echo "SELECT x::text FROM x;"
        echo "COPY x TO '$work/x.bin' (FORMAT binary);"
        echo "COPY x FROM '$work/x.bin' (FORMAT binary);"
        echo "SET pgseal.format = sealed;"
        echo "COPY x TO '$work/x.bin' (FORMAT binary);"
        echo "COPY x FROM '$work/x.bin' (FORMAT binary);"
        echo "COPY x TO '$work/x.txt';"
        echo "COPY x FROM '$work/x.txt';"
        echo "INSERT INTO x VALUES ('pgseal:1:0011');"
        echo "INSERT INTO x VALUES ('pgseal:1:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff0011');"
        echo "RESET pgseal.format;"
        echo "SELECT v FROM x;"
        case $type in
        *random) ;;
        *)
            echo "CREATE INDEX ON x (v);"
            echo "CREATE INDEX ON x USING hash (v);"
            echo "ANALYZE x;"
            echo "SELECT v, count(*) FROM x GROUP BY v ORDER BY v;"
            echo "SELECT count(DISTINCT v), count(*) FROM x;"
            echo "SELECT count(*) FROM x AS a JOIN x AS b ON a.v = b.v WHERE a.v < b.v OR a.v = b.v;"
            echo "SELECT ARRAY[v] < ARRAY[v] FROM x;"
            ;;
        esac
        echo "DROP TABLE x;"
    done
    echo "SELECT pgseal.encrypt('data', 'key', 'aes'), pgseal.decrypt(pgseal.encrypt('data', 'key', 'aes'), 'key', 'aes');"
    echo "SELECT pgseal.decrypt('data', 'key', 'aes');"
    echo "SELECT 1::sealed_int8 = ANY (ARRAY[1, 2]::int8[]), 1::sealed_int4 * 2.5, 3::sealed_int8 = 3, 5::sealed_numeric(5,1);"
    echo "SELECT pgseal.add_key('default');"
    echo "SELECT * FROM pgseal.check();"
} >"$work/memcheck.sql"
valgrind --quiet --trace-children=no --leak-check=no --num-callers=20 --log-file="$work/valgrind.log" \
    "$bin/postgres" --single -D "$work/main" postgres <"$work/memcheck.sql" >"$work/memcheck.out" 2>&1 || true
mkdir -p "$results"
cp "$work/valgrind.log" "$work/memcheck.out" "$results/"
ok "the statements ran to the end" grep -q 'equal values are seen\|finding' "$work/memcheck.out"
ok "nothing but the expected errors" not grep -E 'ERROR: .*(internal|invalid memory|cache lookup)' "$work/memcheck.out"

# What only a client of a running server reaches: the base types that drivers see, and a rotation in
# batches.
valgrind --quiet --leak-check=no --num-callers=20 --log-file="$work/valgrind.%p.log" \
    "$bin/postgres" -D "$work/main" >"$work/memcheck.server" 2>&1 &
server=$!
for ((look = 0; look < 600; look++)); do
    ! "$bin/pg_isready" -q || break
    sleep 0.5
done
sql "CREATE DATABASE memcheck"
sql "CREATE EXTENSION pgseal" -d memcheck
for script in wire rotate; do
    ok "$script.sql runs to its end under valgrind" "$bin/psql" -qAtX -d memcheck -f "$here/sql/$script.sql"
done
ok "values were sealed anew" same "$(sql "SELECT lookup_version > 1 FROM pgseal.domains WHERE domain = 'r'" -d memcheck)" t
"$bin/pg_ctl" -s -D "$work/main" -m fast stop
wait "$server" || true
cat "$work"/valgrind.*.log >>"$work/valgrind.log"
cp "$work/valgrind.log" "$results/"
files=$(basename -s .c server/extension/*.c | paste -sd '|')
# The server's own findings (padding in what it writes) have no frame of the module among the four
# where they happen; its hooks stand further out.
found=$(awk -v files="$(basename -s .c server/extension/*.c | paste -sd '|')" '
    / at 0x/ { depth = 0 }
    / (at|by) 0x/ && ++depth <= 4 && $0 ~ ("(pgseal\\.so|[(](" files ")\\.c:)")' "$work/valgrind.log")
ok "valgrind finds nothing in pgseal.so" same "$found" ""
