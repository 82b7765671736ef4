-- tried: PgBouncer in front, by session and by transaction: pgbench through it, with connections that are kept and new ones, and the server killed below it
-- packages: pgbouncer
-- ignore: ^public\.pgbench_
CREATE TABLE t (id serial PRIMARY KEY, v text);
INSERT INTO t (v) SELECT 'canary-pgbouncer-Zq7x ' || g FROM generate_series(1, 1000) g;
-- after kill -9
SELECT count(*) FROM t;
SELECT count(*) FROM pgbench_history;
SELECT (SELECT sum(delta) FROM pgbench_history) = (SELECT sum(tbalance) FROM pgbench_tellers);
