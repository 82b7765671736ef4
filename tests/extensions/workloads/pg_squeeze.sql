-- tried: tables rewritten by its background worker over logical decoding, by an index, into a tablespace, while another session writes
-- extensions: pg_squeeze
-- release: trixie 17 postgresql-17-squeeze
-- preload: pg_squeeze
-- setting: wal_level = logical
-- setting: max_replication_slots = 10
-- setting: output_plugin_libraries = 'pg_squeeze'
-- ignore: ^squeeze\.(log|errors|tables_internal|tasks)$
CREATE EXTENSION pg_squeeze;
\! mkdir -p /srv/extensions/scratch/space
CREATE TABLESPACE space LOCATION '/srv/extensions/scratch/space';
CREATE TABLE t (id int PRIMARY KEY, k int, v text);
CREATE INDEX t_k ON t (k);
INSERT INTO t SELECT g, g * 7919 % 1009, 'canary-pg_squeeze-Zq7x ' || g || repeat('z', g % 90) FROM generate_series(1, 20000) g;
UPDATE t SET v = v || ' long ' || repeat('canary-pg_squeeze-Zq7x', 500) WHERE id % 1000 = 0;
DELETE FROM t WHERE id % 3 = 0;
CREATE TABLE moved AS SELECT * FROM t;
ALTER TABLE moved ADD PRIMARY KEY (id);
CREATE TABLE sizes AS SELECT pg_relation_size('t') AS before;
\! (for n in $(seq 4 3 124); do psql -X -q -d w -c "UPDATE t SET k = k + 1 WHERE id = $n"; done) &
SELECT squeeze.squeeze_table('public', 't');
SELECT squeeze.squeeze_table('public', 't', 't_k');
SELECT squeeze.squeeze_table('public', 'moved', NULL, 'space', ARRAY[ARRAY['moved_pkey', 'space']]);
SELECT pg_relation_size('t') < before FROM sizes;
DO $$ BEGIN
    FOR i IN 1 .. 600 LOOP
        EXIT WHEN (SELECT sum(k) = sum((id * 7919) % 1009) + 41 FROM t);
        PERFORM pg_sleep(0.1);
        COMMIT;
    END LOOP;
END $$;
SELECT count(*), sum(k) FROM t;
INSERT INTO t SELECT g, g, 'canary-pg_squeeze-Zq7x late ' || g FROM generate_series(30001, 31000) g;
-- after kill -9
SELECT count(*), sum(k), md5(string_agg(v, ',' ORDER BY id)) FROM t;
SELECT count(*), md5(string_agg(v, ',' ORDER BY id)) FROM moved;
SELECT relname, spcname FROM pg_class c JOIN pg_tablespace s ON s.oid = reltablespace WHERE relname ~ '^moved' ORDER BY 1;
SELECT count(*) FROM pg_replication_slots;
