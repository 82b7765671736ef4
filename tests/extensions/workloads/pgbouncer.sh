#!/bin/bash
# Runs one PgBouncer per pool mode. Both clusters run the same number of transactions.
exec 2>&1
for pooling in session transaction; do
    mkdir -p "$SCRATCH/b"
    cat >"$SCRATCH/b/ini" <<INI
[databases]
w = host=$PGHOST port=$PGPORT dbname=w user=postgres
[pgbouncer]
listen_port = 6432
unix_socket_dir = $SCRATCH/b
auth_type = any
pool_mode = $pooling
default_pool_size = 5
logfile = $SCRATCH/b/log
pidfile = $SCRATCH/b/pid
INI
    pgbouncer -q -d "$SCRATCH/b/ini" || exit
    for _ in $(seq 100); do psql -X -q -h "$SCRATCH/b" -p 6432 -d w -c '' 2>/dev/null && break; sleep 0.1; done
    echo "pooling by $pooling, $1"
    if [ "$1" = load ]; then
        [ $pooling != session ] || pgbench -h "$SCRATCH/b" -p 6432 -i -q -s 1 w >/dev/null 2>&1
        pgbench -h "$SCRATCH/b" -p 6432 -n -c 8 -j 2 -t 100 -M simple w 2>&1 | grep 'number of transactions'
        pgbench -h "$SCRATCH/b" -p 6432 -n -c 4 -j 2 -t 50 -C -M extended w 2>&1 | grep 'number of transactions'
        psql -X -q -h "$SCRATCH/b" -p 6432 -d w -c "INSERT INTO t (v) SELECT 'canary-pgbouncer-Zq7x $pooling ' || g FROM generate_series(1, 500) g"
    else
        psql -X -A -t -h "$SCRATCH/b" -p 6432 -d w -c "SELECT count(*) FROM t"
    fi
    kill "$(cat "$SCRATCH/b/pid")"
    while [ -e "$SCRATCH/b/pid" ]; do sleep 0.1; done
done
