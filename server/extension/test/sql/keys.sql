-- Keys, joins, grouping, partitions: all on ciphertext, without a right to decrypt.
CREATE ROLE regress_blind;
CREATE TABLE card (id sealed_int8 PRIMARY KEY, number sealed_text UNIQUE, holder sealed_text, born sealed_date, ref sealed_uuid);
CREATE TABLE tx (id int PRIMARY KEY, card sealed_int8 REFERENCES card ON UPDATE CASCADE ON DELETE CASCADE, amount sealed_numeric(10,2));
GRANT SELECT, INSERT, UPDATE, DELETE ON card, tx TO regress_blind;
SET ROLE regress_blind;
INSERT INTO card SELECT i, 'number ' || i, 'holder ' || i % 5, date '1980-01-01' + i, ('00000000-0000-0000-0000-' || lpad(i::text, 12, '0'))::uuid FROM generate_series(1, 500) AS i;
INSERT INTO tx SELECT i, 1 + i % 500, i FROM generate_series(1, 2000) AS i;
SELECT count(*) FROM card JOIN tx ON tx.card = card.id;
SET enable_hashjoin = off; SET enable_nestloop = off;
EXPLAIN (COSTS OFF) SELECT count(*) FROM card JOIN tx ON tx.card = card.id;
SELECT count(*) FROM card JOIN tx ON tx.card = card.id;
SELECT count(*) FROM card AS a JOIN card AS b USING (number);
RESET enable_hashjoin; SET enable_mergejoin = off;
SELECT count(*) FROM card AS a JOIN card AS b USING (number) JOIN card AS c ON c.ref = a.ref;
RESET enable_nestloop; RESET enable_mergejoin;
SELECT count(*) FROM (SELECT holder, count(*) FROM card GROUP BY holder) AS g;
SET enable_hashagg = off;
SELECT count(*) FROM (SELECT holder, count(*) FROM card GROUP BY holder) AS g;
SELECT count(*) FROM (SELECT DISTINCT holder FROM card) AS g;
RESET enable_hashagg;
SELECT count(DISTINCT holder), count(DISTINCT born) FROM card;
SELECT count(*) FROM (SELECT id FROM card UNION SELECT card FROM tx) AS u;
SELECT count(*) FROM (SELECT id FROM card INTERSECT SELECT card FROM tx) AS u;
SELECT count(*) FROM (SELECT rank() OVER (PARTITION BY holder) FROM card) AS w;
SELECT count(*) FROM card WHERE id = 17 AND number = 'number 17';
UPDATE tx SET amount = 0 WHERE card = 3; DELETE FROM tx WHERE card = 4;
UPDATE card SET id = 100000 WHERE id = 5; SELECT count(*) FROM tx WHERE card = 100000;
INSERT INTO card (id, holder) VALUES (1, 'again') ON CONFLICT (id) DO UPDATE SET holder = excluded.holder;
SELECT count(*) FROM card WHERE holder = 'again';
MERGE INTO card USING (VALUES (1::int8), (2000)) AS v(i) ON card.id = v.i WHEN MATCHED THEN UPDATE SET holder = 'merged' WHEN NOT MATCHED THEN INSERT (id) VALUES (v.i);
SELECT count(*) FROM card WHERE holder = 'merged';
RESET ROLE;
-- violations
INSERT INTO card (id) VALUES (7);
INSERT INTO tx VALUES (9999, 7777, 1);
INSERT INTO card (id, number) VALUES (9000, 'number 3');
-- a plain key cannot refer to a sealed one, nor other types to each other
\set VERBOSITY terse
CREATE TABLE other (card int8 REFERENCES card);
CREATE TABLE other (card sealed_int4 REFERENCES card);
\set VERBOSITY default
-- partitions by hash
CREATE TABLE part (id sealed_int8, v sealed_text) PARTITION BY HASH (id);
CREATE TABLE part0 PARTITION OF part FOR VALUES WITH (MODULUS 3, REMAINDER 0);
CREATE TABLE part1 PARTITION OF part FOR VALUES WITH (MODULUS 3, REMAINDER 1);
CREATE TABLE part2 PARTITION OF part FOR VALUES WITH (MODULUS 3, REMAINDER 2);
ALTER TABLE part ADD PRIMARY KEY (id);
INSERT INTO part SELECT i, i::text FROM generate_series(1, 300) AS i;
SELECT count(*) > 50 FROM part0 UNION ALL SELECT count(*) > 50 FROM part1 UNION ALL SELECT count(*) > 50 FROM part2;
-- which partition that is depends on the key
CREATE FUNCTION plan_of(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text; BEGIN FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP RETURN NEXT regexp_replace(line, 'part\d', 'partN', 'g'); END LOOP; END $$;
SELECT plan_of('SELECT * FROM part WHERE id = 42');
DROP FUNCTION plan_of;
SELECT * FROM part WHERE id = 42;
CREATE TABLE part_text (v sealed_text, w sealed_numeric, x sealed_numeric_wide) PARTITION BY HASH (v, w, x);
CREATE TABLE part_text0 PARTITION OF part_text FOR VALUES WITH (MODULUS 1, REMAINDER 0);
INSERT INTO part_text VALUES ('a', 1.0, 2.0);
SELECT * FROM part_text WHERE v = 'a' AND w = 1.00 AND x = 2.000;
-- parallel workers have the keys of their leader
CREATE TABLE big AS SELECT i::int8::sealed_int8 AS id, ('text ' || i % 100)::sealed_text AS t FROM generate_series(1, 20000) AS i;
SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET max_parallel_workers_per_gather = 2;
EXPLAIN (COSTS OFF) SELECT sum(id), count(*) FROM big WHERE t LIKE '%7';
SELECT sum(id), count(*) FROM big WHERE t LIKE '%7';
SELECT t, count(*) FROM big GROUP BY t ORDER BY t DESC LIMIT 2;
RESET parallel_setup_cost; RESET parallel_tuple_cost; RESET min_parallel_table_scan_size; RESET max_parallel_workers_per_gather;
SHOW pgseal.worker_keys;
SET pgseal.worker_keys = 'ab';
SELECT count(*) FROM pg_settings WHERE name LIKE 'pgseal.%key%' OR name = 'pgseal.passphrase';
DROP TABLE tx, card, part, part_text, big; DROP ROLE regress_blind;
