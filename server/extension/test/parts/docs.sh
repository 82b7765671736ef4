# shellcheck shell=bash
# Sourced by run.sh. What docs/columns.md tells people to type first, word for word, on a server
# that knows nothing of pgseal yet; only the path of the key is another one.

start docs
export PGPORT=$((next_port - 1))
"$bin/pg_ctl" -s -D "$work/docs" -m fast stop
sed -i '/^pgseal.provider/d' "$work/docs/postgresql.conf"
"$bin/pg_ctl" -s -w -t 120 -D "$work/docs" -l "$work/docs/log" start
sed -nE '/^```sql$/,/^```$/{/^```/d;p}' docs/columns.md | sed "/^CREATE TABLE card/q; s|/etc/pgseal/columns.key|$work/kek|" >"$work/setup.sql"
ok "the first statements are there" grep -q "^CREATE TABLE card" "$work/setup.sql"
ok "the first statements of docs/columns.md work" "$bin/psql" -qAtX -v ON_ERROR_STOP=1 -f "$work/setup.sql"
sql "INSERT INTO card VALUES (1, 'Ada', 12.5, '1815-12-10', 'first')"
ok "and what they make" same "$(sql "SELECT * FROM card WHERE holder = 'Ada'")" "1|Ada|12.50|1815-12-10|first"
"$bin/pg_ctl" -s -D "$work/docs" -m fast stop
# Its port is free again: other parts know theirs by number.
next_port=$((next_port - 1))
export PGPORT=5432
