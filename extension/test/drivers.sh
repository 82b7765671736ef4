# shellcheck shell=bash
# Sourced by run.sh. psycopg and JDBC against a real server on 127.0.0.1: text and binary, prepared statements. The
# drivers come from PyPI and Maven's central repository.

LISTEN=127.0.0.1 start drivers
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet 'psycopg[binary]==3.2.*'
sql "CREATE EXTENSION pgseal; SELECT pgseal.create_domain('default')" >/dev/null
sql "CREATE TABLE card (id sealed_int8 PRIMARY KEY, code sealed_int4, holder sealed_text, number sealed_uuid, balance sealed_numeric(12,2), born sealed_date, at sealed_timestamptz, raw sealed_bytea, note sealed_text_random, data sealed_jsonb_random)"
ok "psycopg" "$work/venv/bin/python" "$here/drivers/psycopg_test.py" "host=127.0.0.1 port=$PGPORT dbname=postgres user=postgres"
sql "TRUNCATE card"
mkdir -p "$work/java"
if command -v mvn >/dev/null && command -v javac >/dev/null; then
    mvn -q -Dmaven.repo.local="$work/m2" dependency:copy -Dartifact=org.postgresql:postgresql:42.7.4 -DoutputDirectory="$work/java" ||
        die "the JDBC driver could not be fetched from Maven's central repository"
    ok "compile the JDBC test" javac -d "$work/java" "$here/drivers/JdbcTest.java"
    ok "JDBC" java -cp "$work/java:$(echo "$work"/java/postgresql-*.jar)" JdbcTest \
        "jdbc:postgresql://127.0.0.1:$PGPORT/postgres?user=postgres&prepareThreshold=1"
else
    warn "JDBC is not tested: javac and mvn are not here (apt-get install default-jdk-headless maven)"
fi
