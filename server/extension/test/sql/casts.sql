-- Existing queries go on working: arithmetic, aggregates, functions, LIKE.
CREATE TABLE item (id sealed_int8, line sealed_int4, qty sealed_numeric(12,2), price sealed_numeric(12,2), discount sealed_numeric(4,2),
    shipped sealed_date, stamp sealed_timestamp, stamptz sealed_timestamptz, mode sealed_text, comment sealed_text_random);
CREATE TABLE item_plain (id int8, line int4, qty numeric(12,2), price numeric(12,2), discount numeric(4,2),
    shipped date, stamp timestamp, stamptz timestamptz, mode text, comment text);
SET timezone = 'UTC'; SET datestyle = 'ISO, YMD';
INSERT INTO item_plain SELECT i, i % 7, i * 1.5, i * 100.01, (i % 10) / 100.0, date '1994-12-01' + i, timestamp '2024-01-01' + i * interval '1 hour',
    timestamptz '2024-01-01 00:00+00' + i * interval '1 day', (ARRAY['AIR', 'RAIL', 'PROMO TIN', 'TRUCK'])[1 + i % 4], 'comment ' || i FROM generate_series(1, 200) AS i;
INSERT INTO item SELECT * FROM item_plain;
-- every value in the histogram: the order of ciphertext, another with each key, chooses none
ALTER TABLE item ALTER id SET STATISTICS 1000, ALTER shipped SET STATISTICS 1000;
ANALYZE item;
-- runs a query on both, and says whether the answers agree
CREATE FUNCTION agree(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE a text; b text;
BEGIN
    EXECUTE format('SELECT string_agg(t::text, %L) FROM (%s) AS t', E'\n', replace(query, '@', 'item_plain')) INTO a;
    EXECUTE format('SELECT string_agg(t::text, %L) FROM (%s) AS t', E'\n', replace(query, '@', 'item')) INTO b;
    IF a IS DISTINCT FROM b THEN RETURN format('%s: plain %s, sealed %s', query, a, b); END IF;
    RETURN 'same: ' || query;
END $$;
SELECT agree(q) FROM unnest(ARRAY[
    'SELECT sum(price * (1 - discount)), avg(qty), count(*), stddev(price) FROM @',
    'SELECT count(*) FROM @ WHERE shipped < date ''1995-01-01''',
    'SELECT count(*) FROM @ WHERE shipped < ''1995-01-01''',
    'SELECT count(*) FROM @ WHERE shipped >= date ''1994-12-31'' AND shipped < date ''1994-12-31'' + interval ''1 month''',
    'SELECT count(*) FROM @ WHERE shipped BETWEEN ''1995-01-01'' AND ''1995-02-01''',
    'SELECT count(*) FROM @ WHERE mode LIKE ''PROMO%''',
    'SELECT count(*) FROM @ WHERE mode NOT LIKE ''%IL'' AND mode ILIKE ''%r%'' AND mode ~ ''R''',
    'SELECT count(*) FROM @ WHERE mode IN (''AIR'', ''RAIL'')',
    'SELECT count(*) FROM @ WHERE mode = ANY (''{AIR,RAIL}'')',
    'SELECT count(*) FROM @ WHERE id IN (1, 2, 500) OR id = ANY (ARRAY[7, 8]::int8[]) OR id = 10',
    'SELECT count(*) FROM @ WHERE id <> ALL (ARRAY[7, 8]::int8[])',
    'SELECT count(*) FROM @ WHERE id = 5::int2 OR 6 = id OR id = 7::int8 OR id = 8.0',
    'SELECT count(*) FROM @ WHERE line = 3::int8 OR line = 5000000000 OR line = 4',
    'SELECT count(*) FROM @ WHERE id > 100 AND id <= 150 AND 120 < id AND line < id',
    'SELECT count(*) FROM @ WHERE qty = 3 OR qty = 4.50 OR qty = 0.333333333333333333333',
    'SELECT count(*) FROM @ WHERE qty < 24 AND discount BETWEEN 0.06 - 0.01 AND 0.06 + 0.01',
    'SELECT sum(case when mode like ''PROMO%'' then price * (1 - discount) else 0 end) / sum(price * (1 - discount)) FROM @',
    'SELECT sum(price * line), sum(id * line), sum(line + 1), sum(id % 10), sum(line * 2.5), sum(2 * id - line) FROM @',
    'SELECT extract(year from shipped) AS y, extract(month from shipped), count(*) FROM @ GROUP BY 1, 2 ORDER BY 1, 2',
    'SELECT upper(mode), length(mode), substring(mode from 1 for 2), mode || ''!'' FROM @ WHERE id < 5 ORDER BY id',
    'SELECT min(id), max(id), min(shipped), max(shipped), min(mode), max(mode), min(price) FROM @',
    'SELECT shipped + 1, shipped - date ''1994-12-01'', stamp - interval ''1 day'', date_trunc(''month'', stamptz), age(stamp, timestamp ''2024-01-01'') FROM @ WHERE id = 3',
    'SELECT abs(line), round(price, 1), -line, power(qty, 2), to_char(price, ''999G999D99''), to_char(shipped, ''YYYY''), date_trunc(''month'', shipped) FROM @ WHERE id = 4',
    'SELECT coalesce(mode, ''none''), coalesce(id, 0::int8), nullif(mode, ''AIR'') FROM @ WHERE id < 4 ORDER BY id',
    'SELECT count(*) FROM @ WHERE stamp < ''2024-01-02'' AND stamptz < timestamptz ''2024-03-01'' AND stamp > date ''2024-01-01''',
    'SELECT line, count(*), sum(qty) FROM @ GROUP BY line ORDER BY line',
    'SELECT comment FROM @ WHERE comment = ''comment 7'' OR comment LIKE ''%99'' ORDER BY comment::text',
    'SELECT a.id FROM @ AS a JOIN @ AS b ON a.id = b.line ORDER BY a.id LIMIT 3',
    'SELECT count(*) FROM @ WHERE (shipped, id) IN (SELECT shipped, id FROM @ WHERE id < 10)',
    'SELECT count(*) FROM @ WHERE qty > (SELECT avg(qty) FROM @)',
    'SELECT id::text, price::int8, id::int4, price::float8, shipped::timestamp, mode::varchar(3), line::numeric FROM @ WHERE id = 9',
    'SELECT json_agg(id::int8 ORDER BY id) FROM @ WHERE id < 4',
    'SELECT json_build_object(''id'', id::int8, ''mode'', mode) FROM @ WHERE id = 4'
]) AS q;
-- the constant is sealed once, when the query is planned
CREATE INDEX ON item (id); CREATE INDEX ON item (mode); CREATE INDEX ON item USING hash (shipped);
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT * FROM item WHERE id = 5;
EXPLAIN (COSTS OFF) SELECT * FROM item WHERE 5::int8 = id;
EXPLAIN (COSTS OFF) SELECT * FROM item WHERE mode = 'AIR';
EXPLAIN (COSTS OFF) SELECT * FROM item WHERE mode = 'AIR'::varchar;
EXPLAIN (COSTS OFF) SELECT * FROM item WHERE shipped = date '1995-01-01';
EXPLAIN (COSTS OFF) SELECT * FROM item WHERE id = ANY ('{1,2}'::int8[]);
PREPARE by_id(int8) AS SELECT mode FROM item WHERE id = $1;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE by_id(6);
EXECUTE by_id(6);
RESET plan_cache_mode; RESET enable_seqscan;
-- estimates know the values
CREATE FUNCTION estimate(query text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE j json; BEGIN EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO j; RETURN (j->0->'Plan'->>'Plan Rows')::int; END $$;
SELECT estimate('SELECT FROM item WHERE id < 50') BETWEEN 35 AND 65 AS lt, estimate('SELECT FROM item WHERE mode = ''AIR''') = 50 AS eq,
    estimate('SELECT FROM item WHERE shipped > date ''1995-05-01''') BETWEEN 30 AND 70 AS gt;
-- what stays ambiguous is an error
SELECT id * 1.5::float8 FROM item LIMIT 1;
SELECT coalesce(id, 0) FROM item LIMIT 1;
DROP TABLE item, item_plain; DROP FUNCTION agree, estimate;
