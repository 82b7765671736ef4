# shellcheck shell=bash
# Sourced by run.sh. Plans that a session keeps hold constants sealed under the key of their time:
# none may outlive a rotation by another session.

sql "CREATE DATABASE plans"
export PGDATABASE=plans
sql "CREATE EXTENSION pgseal; SELECT pgseal.create_domain('default')" >/dev/null
sql "CREATE TABLE sealed (id sealed_int8 PRIMARY KEY, v sealed_text, n sealed_numeric(8,2), d sealed_date);
    CREATE TABLE heap (v sealed_text);
    CREATE TABLE plain (id int8, v text);
    INSERT INTO plain SELECT i, 'v' || i FROM generate_series(1, 200) AS i;
    INSERT INTO sealed SELECT id, v, id / 4.0, date '2024-01-01' + id::int FROM plain;
    INSERT INTO heap SELECT v FROM plain;
    CREATE FUNCTION in_table() RETURNS bigint LANGUAGE plpgsql AS \$\$
        DECLARE found bigint; BEGIN SELECT count(*) INTO found FROM sealed
            WHERE v = 'v7' AND id = 7 AND n = 1.75 AND d = date '2024-01-08' AND v IN ('v7', 'v8') AND id = ANY ('{7, 8}'::int8[]); RETURN found; END \$\$;
    CREATE FUNCTION is_text(given sealed_text) RETURNS bigint LANGUAGE plpgsql AS \$\$ BEGIN RETURN (given = 'v7')::int; END \$\$;
    CREATE FUNCTION is_number(given sealed_int8) RETURNS bigint LANGUAGE plpgsql AS \$\$ BEGIN RETURN (given = 7)::int; END \$\$;
    CREATE FUNCTION is_date(given sealed_date) RETURNS bigint LANGUAGE plpgsql AS \$\$ BEGIN RETURN CASE given WHEN date '2024-01-08' THEN 1 ELSE 0 END; END \$\$;"

# Every question has the answer 1. One function has all its constants beside columns, the others
# have no table in their plans, so that no change of a table says anything about them; the same for
# the prepared statements.
questions=(
    "SELECT in_table()"
    "SELECT sum(is_text(v)) FROM sealed"
    "SELECT sum(is_number(id)) FROM sealed"
    "SELECT sum(is_date(d)) FROM sealed"
    "SELECT count(*) FROM sealed WHERE v = 'v7' AND id = 7 AND n = 1.75"
    "SELECT count(*) FROM heap WHERE v = 'v7'"
    "SELECT count(*) FROM plain WHERE v::sealed_text = 'v7'::sealed_text"
    "SELECT count(*) FROM plain WHERE id::sealed_int8 = 7::int8::sealed_int8"
    "SELECT sum(is_text(v::sealed_text)) FROM plain"
    "SELECT sum(is_number(id::sealed_int8)) FROM plain"
)
# ask FIRST: a session prepares and asks all, waits for the rotation of another one, and asks again,
# FIRST before the others.
ask() {
    local i first=$1
    {
        printf 'SET plan_cache_mode = force_generic_plan;\n'
        for i in "${!questions[@]}"; do printf 'PREPARE q%d AS %s;\n' "$i" "${questions[i]}"; done
        for i in "${!questions[@]}" "${!questions[@]}"; do printf 'EXECUTE q%d;\n' "$i"; done
        # shellcheck disable=SC2016 # psql's shell expands it
        printf '%s\n' '\! "$PSQL" -qAtX -v ON_ERROR_STOP=1 -c "CALL pgseal.rotate('\''default'\'')" || echo failed'
        for i in "$first" "${!questions[@]}"; do printf 'EXECUTE q%d;\n' "$i"; done
    } | PSQL=$bin/psql "$bin/psql" -qAtX -v ON_ERROR_STOP=1 | tr -d '\n'
}
answers=$(printf '%0*d' $((3 * ${#questions[@]} + 1)) 0 | tr 0 1)
for i in "${!questions[@]}"; do
    ok "kept plans after a rotation, first: ${questions[i]}" same "$(ask "$i")" "$answers"
done
ok "the rotations took place" same "$(sql "SELECT lookup_version FROM pgseal.domains")" $((1 + ${#questions[@]}))
export PGDATABASE=postgres
