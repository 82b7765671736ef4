-- tried: hints in comments and from its table: scans, joins, leading tables, rows, settings; what kill -9 leaves of the table
-- extensions: pg_hint_plan
-- release: trixie 17 postgresql-17-pg-hint-plan
-- preload: pg_hint_plan
CREATE EXTENSION pg_hint_plan;
CREATE TABLE a (id int PRIMARY KEY, k int, v text);
CREATE TABLE b (id int PRIMARY KEY, a int, v text);
INSERT INTO a SELECT g, g % 100, 'canary-pg_hint_plan-Zq7x ' || g FROM generate_series(1, 5000) g;
INSERT INTO b SELECT g, g % 5000, 'canary-pg_hint_plan-Zq7x ' || g FROM generate_series(1, 20000) g;
CREATE INDEX a_k ON a (k);
CREATE INDEX b_a ON b (a);
ANALYZE a, b;
/*+ SeqScan(a) */ EXPLAIN (COSTS OFF) SELECT * FROM a WHERE id = 7;
/*+ IndexScan(a a_k) */ EXPLAIN (COSTS OFF) SELECT count(v) FROM a WHERE k > 3;
/*+ Leading((b a)) NestLoop(a b) */ EXPLAIN (COSTS OFF) SELECT count(*) FROM a JOIN b ON b.a = a.id WHERE a.k = 5;
/*+ MergeJoin(a b) Set(enable_sort on) */ EXPLAIN (COSTS OFF) SELECT count(*) FROM a JOIN b ON b.a = a.id;
/*+ HashJoin(a b) */ SELECT count(*), md5(string_agg(b.v, ',' ORDER BY b.id)) FROM a JOIN b ON b.a = a.id WHERE a.k = 5;
SET pg_hint_plan.enable_hint_table = on;
SET compute_query_id = on;
SELECT attname FROM pg_attribute WHERE attrelid = 'hint_plan.hints'::regclass AND attnum > 0 ORDER BY attnum;
EXPLAIN (VERBOSE, COSTS OFF) SELECT * FROM a WHERE id = 8;
DO $$
DECLARE line text; q bigint;
BEGIN
    FOR line IN EXPLAIN (VERBOSE, COSTS OFF) SELECT * FROM a WHERE id = 9 LOOP
        q := coalesce(substring(line FROM 'Query Identifier: (-?\d+)')::bigint, q);
    END LOOP;
    INSERT INTO hint_plan.hints (query_id, application_name, hints) VALUES (q, '', 'SeqScan(a) /* canary-pg_hint_plan-Zq7x */');
END $$;
EXPLAIN (COSTS OFF) SELECT * FROM a WHERE id = 10;
-- after kill -9
SET pg_hint_plan.enable_hint_table = on;
SET compute_query_id = on;
SELECT id, hints FROM hint_plan.hints;
EXPLAIN (COSTS OFF) SELECT * FROM a WHERE id = 11;
/*+ Leading((b a)) NestLoop(a b) */ EXPLAIN (COSTS OFF) SELECT count(*) FROM a JOIN b ON b.a = a.id WHERE a.k = 5;
/*+ HashJoin(a b) */ SELECT count(*), md5(string_agg(b.v, ',' ORDER BY b.id)) FROM a JOIN b ON b.a = a.id WHERE a.k = 5;
