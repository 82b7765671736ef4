-- tried: hll columns, aggregates, unions, sparse to full, indexes on cardinality
-- extensions: hll
CREATE EXTENSION hll;
CREATE TABLE visits (day date, person text);
INSERT INTO visits SELECT '2026-01-01'::date + g % 30, 'canary-hll-Zq7x ' || g % 7919 FROM generate_series(1, 40000) g;
CREATE TABLE daily AS SELECT day, hll_add_agg(hll_hash_text(person)) AS people FROM visits GROUP BY day;
CREATE INDEX ON daily (hll_cardinality(people));
SELECT day, hll_cardinality(people) FROM daily ORDER BY day LIMIT 5;
CHECKPOINT;
UPDATE daily SET people = hll_add(people, hll_hash_text('canary-hll-Zq7x new')) WHERE day < '2026-01-10';
INSERT INTO visits SELECT '2026-02-01', 'canary-hll-Zq7x ' || g FROM generate_series(1, 5000) g;
INSERT INTO daily SELECT day, hll_add_agg(hll_hash_text(person), 12) FROM visits WHERE day >= '2026-02-01' GROUP BY day;
SELECT hll_cardinality(hll_union_agg(people)) FROM daily WHERE day < '2026-02-01';
-- after kill -9
SELECT day, hll_cardinality(people), length(people::text) FROM daily ORDER BY day;
SET enable_seqscan = off;
SELECT count(*) FROM daily WHERE hll_cardinality(people) > 1000;
