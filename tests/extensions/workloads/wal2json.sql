-- tried: changes of formats 1 and 2 from a slot, large transactions that spill, filters, a slot that outlives the kill; decoderbufs and test_decoding too
-- extensions: decoderbufs
-- packages: postgresql-15-wal2json
-- setting: wal_level = logical
-- setting: output_plugin_libraries = 'wal2json, decoderbufs, test_decoding'
-- setting: logical_decoding_work_mem = 64kB
-- normalise: s/"(xid|nextlsn|lsn)": ?"?[0-9A-F\/]+"?/"\1":N/g
CREATE TABLE t (id int PRIMARY KEY, v text, j jsonb);
ALTER TABLE t REPLICA IDENTITY FULL;
SELECT slot_name FROM pg_create_logical_replication_slot('first', 'wal2json');
SELECT slot_name FROM pg_create_logical_replication_slot('second', 'wal2json');
SELECT slot_name FROM pg_create_logical_replication_slot('third', 'test_decoding');
SELECT slot_name FROM pg_create_logical_replication_slot('fourth', 'decoderbufs');
INSERT INTO t SELECT g, 'canary-wal2json-Zq7x ' || g, jsonb_build_object('n', g) FROM generate_series(1, 5) g;
UPDATE t SET v = v || ' changed' WHERE id = 3;
DELETE FROM t WHERE id = 4;
SELECT data FROM pg_logical_slot_get_changes('first', NULL, NULL, 'pretty-print', '1', 'include-xids', '0', 'include-timestamp', '0');
SELECT data FROM pg_logical_slot_peek_changes('second', NULL, NULL, 'format-version', '2');
INSERT INTO t SELECT g, 'canary-wal2json-Zq7x big ' || g || repeat('y', 200), NULL FROM generate_series(10, 5000) g;
SELECT count(*), sum(length(data)) FROM pg_logical_slot_peek_changes('second', NULL, NULL, 'format-version', '2', 'include-lsn', '0');
SELECT count(*) FROM pg_logical_slot_peek_binary_changes('fourth', NULL, NULL);
CHECKPOINT;
-- one transaction is open and spilled when the server is killed
BEGIN;
INSERT INTO t SELECT g, 'canary-wal2json-Zq7x more ' || g || repeat('y', 200), NULL FROM generate_series(6000, 9000) g;
SELECT count(*) FROM pg_logical_slot_peek_changes('third', NULL, NULL);
COMMIT;
-- after kill -9
SELECT slot_name, plugin, active FROM pg_replication_slots ORDER BY 1;
SELECT count(*), sum(length(data)) FROM pg_logical_slot_get_changes('second', NULL, NULL, 'format-version', '2', 'include-lsn', '0');
SELECT count(*), sum(length(data)) FROM pg_logical_slot_get_changes('third', NULL, NULL, 'include-xids', '0');
SELECT count(*) FROM pg_logical_slot_get_binary_changes('fourth', NULL, NULL);
SELECT count(*) FROM t;
