-- tried: partitions by number, made ahead by maintenance, moved out of the default partition, retention; the background worker loaded
-- extensions: pg_partman
-- preload: pg_partman_bgw
-- setting: pg_partman_bgw.interval = 3600
CREATE SCHEMA partman;
CREATE EXTENSION pg_partman SCHEMA partman;
CREATE TABLE events (id int NOT NULL, at timestamptz NOT NULL, v text) PARTITION BY RANGE (id);
CREATE INDEX ON events (id);
SELECT partman.create_parent('public.events', 'id', 'native', '1000', p_premake := 3);
INSERT INTO events SELECT g, '2026-01-01'::timestamptz + g * interval '1 minute', 'canary-pg_partman-Zq7x ' || g FROM generate_series(1, 3500) g;
CALL partman.run_maintenance_proc();
CHECKPOINT;
INSERT INTO events SELECT g, '2026-01-01'::timestamptz + g * interval '1 minute', 'canary-pg_partman-Zq7x ' || g FROM generate_series(3501, 9500) g;
CALL partman.partition_data_proc('public.events');
CALL partman.run_maintenance_proc();
SELECT inhrelid::regclass, (SELECT count(*) FROM events e WHERE e.tableoid = inhrelid) FROM pg_inherits WHERE inhparent = 'events'::regclass ORDER BY 1::text COLLATE "C";
UPDATE partman.part_config SET retention = '5000', retention_keep_table = false WHERE parent_table = 'public.events';
SELECT partman.drop_partition_id('public.events');
INSERT INTO events SELECT g, '2026-01-01'::timestamptz, 'canary-pg_partman-Zq7x late ' || g FROM generate_series(9501, 9999) g;
-- after kill -9
SELECT count(*), min(id), max(id) FROM events;
SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'events'::regclass ORDER BY 1::text COLLATE "C";
SELECT * FROM partman.check_default();
