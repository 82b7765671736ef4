-- tried: a provider and a subscriber in two databases of one server: first copy, changes, a conflict, DDL, kill -9 and catching up
-- extensions: pglogical
-- preload: pglogical
-- setting: wal_level = logical
-- setting: track_commit_timestamp = on
-- setting: output_plugin_libraries = 'pglogical_output'
-- setting: max_worker_processes = 20
-- ignore: ^pglogical\.
CREATE EXTENSION pglogical;
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE SEQUENCE s;
INSERT INTO t SELECT g, 'canary-pglogical-Zq7x ' || g FROM generate_series(1, 3000) g;
SELECT pglogical.create_node('provider', 'dbname=w host=/srv/extensions port=5415 user=postgres') > 0;
SELECT pglogical.replication_set_add_all_tables('default', ARRAY['public']);
SELECT pglogical.replication_set_add_sequence('default', 's');
CREATE DATABASE other;
\c other
CREATE EXTENSION pglogical;
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE SEQUENCE s;
SELECT pglogical.create_node('subscriber', 'dbname=other host=/srv/extensions port=5415 user=postgres') > 0;
SELECT pglogical.create_subscription('sub', 'dbname=w host=/srv/extensions port=5415 user=postgres') > 0;
SELECT pglogical.wait_for_subscription_sync_complete('sub');
SELECT count(*), md5(string_agg(v, ',' ORDER BY id)) FROM t;
\c w
UPDATE t SET v = v || ' changed' WHERE id % 100 = 0;
DELETE FROM t WHERE id % 77 = 0;
INSERT INTO t SELECT g, 'canary-pglogical-Zq7x more ' || g FROM generate_series(3001, 6000) g;
SELECT pglogical.wait_slot_confirm_lsn(NULL, NULL);
SELECT pglogical.replicate_ddl_command('CREATE TABLE public.made (id int PRIMARY KEY, v text)');
SELECT pglogical.replication_set_add_table('default', 'made');
INSERT INTO made VALUES (1, 'canary-pglogical-Zq7x made');
SELECT pglogical.wait_slot_confirm_lsn(NULL, NULL);
\c other
SELECT count(*), md5(string_agg(v, ',' ORDER BY id)) FROM t;
SELECT * FROM made;
CHECKPOINT;
UPDATE t SET v = 'local' WHERE id = 5;
\c w
UPDATE t SET v = 'canary-pglogical-Zq7x wins' WHERE id = 5;
INSERT INTO t SELECT g, 'canary-pglogical-Zq7x last ' || g FROM generate_series(6001, 7000) g;
-- after kill -9
SELECT pglogical.wait_slot_confirm_lsn(NULL, NULL);
SELECT count(*), md5(string_agg(v, ',' ORDER BY id)) FROM t;
INSERT INTO t VALUES (8000, 'canary-pglogical-Zq7x behind');
SELECT pglogical.wait_slot_confirm_lsn(NULL, NULL);
\c other
SELECT subscription_name, status FROM pglogical.show_subscription_status();
SELECT count(*), md5(string_agg(v, ',' ORDER BY id)) FROM t;
