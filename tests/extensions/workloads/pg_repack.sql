-- tried: the program: whole tables, order by, indexes only, into a tablespace, while another session writes
-- extensions: pg_repack
CREATE EXTENSION pg_repack;
\! mkdir -p /srv/extensions/scratch/space
CREATE TABLESPACE space LOCATION '/srv/extensions/scratch/space';
CREATE TABLE t (id int PRIMARY KEY, k int, v text);
CREATE INDEX t_k ON t (k);
INSERT INTO t SELECT g, g * 7919 % 1009, 'canary-pg_repack-Zq7x ' || g || repeat('z', g % 90) FROM generate_series(1, 20000) g;
UPDATE t SET v = v || ' long ' || repeat('canary-pg_repack-Zq7x', 500) WHERE id % 1000 = 0;
DELETE FROM t WHERE id % 3 = 0;
CREATE TABLE written (n int PRIMARY KEY);
-- after kill -9
SELECT count(*), md5(string_agg(v, ',' ORDER BY id)) FROM t;
SELECT count(*) FROM repack.tables WHERE relname = 't';
SELECT spcname FROM pg_class c JOIN pg_tablespace s ON s.oid = reltablespace WHERE relname = 't';
