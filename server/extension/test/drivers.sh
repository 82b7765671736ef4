# shellcheck shell=bash
# Sourced by run.sh. Drivers against a real server on 127.0.0.1: text and binary, prepared
# statements, sealed types as they are and with pgseal.base_types. The drivers come from PyPI,
# Maven's central repository, npm and the Go proxy.

LISTEN=127.0.0.1 start drivers
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet 'psycopg[binary]==3.2.*' 'asyncpg==0.30.*' 'SQLAlchemy==2.0.*' 'Django==5.2.*'
url=postgresql://postgres@127.0.0.1:$PGPORT/postgres
sql "CREATE EXTENSION pgseal; SELECT pgseal.create_domain('default')" >/dev/null
sql "CREATE TABLE card (id sealed_int8 PRIMARY KEY, code sealed_int4, holder sealed_text, number sealed_uuid, balance sealed_numeric(12,2), born sealed_date, at sealed_timestamptz, raw sealed_bytea, note sealed_text_random, data sealed_jsonb_random)"
ok "psycopg" "$work/venv/bin/python" "$here/drivers/psycopg_test.py" "host=127.0.0.1 port=$PGPORT dbname=postgres user=postgres"
sql "TRUNCATE card"
ok "asyncpg" "$work/venv/bin/python" "$here/drivers/asyncpg_test.py" "$url"
sql "TRUNCATE card"
ok "SQLAlchemy and Django" "$work/venv/bin/python" "$here/drivers/orm_test.py" "$PGPORT"
if command -v npm >/dev/null; then
    (cd "$work" && npm install --silent --no-audit --no-fund --prefix "$work/node" pg@8) || die "node-postgres could not be fetched from npm"
    sql "TRUNCATE card"
    ok "node-postgres" env NODE_PATH="$work/node/node_modules" node "$here/drivers/node_test.js" "$url"
else
    warn "node-postgres is not tested: npm is not here (apt-get install npm)"
fi
if command -v go >/dev/null; then
    export GOPATH=$work/go GOCACHE=$work/go-cache GOFLAGS=-modcacherw
    cp -r "$here/drivers/pgx" "$work/pgx"
    (cd "$work/pgx" && go mod init pgx_test && go get github.com/jackc/pgx/v5@v5.7.2 && go build -o pgx_test .) >"$work/pgx.log" 2>&1 ||
        { tail -n 5 "$work/pgx.log"; die "pgx could not be fetched or built"; }
    sql "TRUNCATE card"
    ok "pgx" "$work/pgx/pgx_test" "$url"
else
    warn "pgx is not tested: go is not here (apt-get install golang)"
fi
sql "TRUNCATE card"
mkdir -p "$work/java"
if command -v mvn >/dev/null && command -v javac >/dev/null; then
    mvn -q -Dmaven.repo.local="$work/m2" dependency:copy -Dartifact=org.postgresql:postgresql:42.7.4 -DoutputDirectory="$work/java" ||
        die "the JDBC driver could not be fetched from Maven's central repository"
    ok "compile the JDBC test" javac -d "$work/java" "$here/drivers/JdbcTest.java"
    ok "JDBC" java -cp "$work/java:$(echo "$work"/java/postgresql-*.jar)" JdbcTest \
        "jdbc:postgresql://127.0.0.1:$PGPORT/postgres?user=postgres&prepareThreshold=1"
    ok "compile the JDBC test with base types" javac -d "$work/java" "$here/drivers/BaseTypesTest.java"
    sql "TRUNCATE card"
    ok "JDBC with base types" java -cp "$work/java:$(echo "$work"/java/postgresql-*.jar)" BaseTypesTest \
        "jdbc:postgresql://127.0.0.1:$PGPORT/postgres?user=postgres&prepareThreshold=1"
else
    warn "JDBC is not tested: javac and mvn are not here (apt-get install default-jdk-headless maven)"
fi
