-- tried: pg_stat_statements, pg_qualstats, pg_stat_kcache, pg_wait_sampling, pg_track_settings, hypopg, powa's snapshots; what kill -9 leaves of them
-- extensions: pg_qualstats pg_stat_kcache pg_wait_sampling pg_track_settings powa hypopg
-- preload: pg_stat_statements,pg_qualstats,pg_stat_kcache,pg_wait_sampling
-- setting: pg_stat_statements.track = all
-- setting: pg_qualstats.sample_rate = 1
-- setting: pg_wait_sampling.profile_period = 1
-- ignore: ^public\.(powa|pg_)
CREATE EXTENSION pg_stat_statements;
CREATE EXTENSION pg_qualstats;
CREATE EXTENSION pg_stat_kcache;
CREATE EXTENSION pg_wait_sampling;
CREATE EXTENSION pg_track_settings;
CREATE EXTENSION powa CASCADE;
CREATE EXTENSION hypopg;
CREATE TABLE t (id int, v text);
INSERT INTO t SELECT g, 'canary-pg_stat-Zq7x ' || g FROM generate_series(1, 20000) g;
SELECT count(*) FROM t WHERE v = 'canary-pg_stat-Zq7x 77';
SELECT count(*) FROM t WHERE id = 5 AND v LIKE 'canary-pg_stat-Zq7x%';
SELECT query, calls, rows FROM pg_stat_statements WHERE query LIKE 'SELECT count(*) FROM t%' ORDER BY query COLLATE "C";
SELECT constvalue, occurences FROM pg_qualstats WHERE constvalue LIKE '%canary%' ORDER BY constvalue COLLATE "C";
SELECT count(*) > 0 FROM pg_stat_kcache WHERE datname = 'w';
SELECT exec_reads >= 0, exec_writes >= 0 FROM pg_stat_kcache() LIMIT 1;
SELECT count(*) > 0 FROM pg_wait_sampling_history;
SELECT count(*) > 0 FROM pg_wait_sampling_profile;
SELECT pg_track_settings_snapshot();
SELECT powa_take_snapshot() = 0;
SELECT indexname IS NOT NULL FROM hypopg_create_index('CREATE INDEX ON t (id)');
EXPLAIN (COSTS off) SELECT v FROM t WHERE id = 5;
CHECKPOINT;
INSERT INTO t SELECT g, 'canary-pg_stat-Zq7x late ' || g FROM generate_series(20001, 21000) g;
-- after kill -9
SELECT count(*) FROM t;
SELECT calls FROM pg_stat_statements WHERE query LIKE 'SELECT count(*) FROM t WHERE v%';
SELECT count(*) FROM powa_statements WHERE query LIKE '%FROM t WHERE v =%';
SELECT count(*) > 0 FROM pg_track_settings('now');
