#!/bin/bash
[ "$1" = load ] || exit 0
exec 2>&1
(for n in $(seq 50); do psql -X -q -d w -c "INSERT INTO written VALUES ($n)" -c "UPDATE t SET k = k + 1 WHERE id = $n"; done) &
pg_repack -d w --table t --order-by k
wait
pg_repack -d w --table t --only-indexes
pg_repack -d w --table t --tablespace space --moveidx
psql -X -q -d w -c "INSERT INTO t SELECT g, g, 'canary-pg_repack-Zq7x late ' || g FROM generate_series(30001, 31000) g"
