-- tried: a plan of tests of tables, keys, results and errors; xUnit tests
-- extensions: pgtap
CREATE EXTENSION pgtap;
CREATE TABLE t (id int PRIMARY KEY, v text NOT NULL);
INSERT INTO t SELECT g, 'canary-pgtap-Zq7x ' || g FROM generate_series(1, 300) g;
CREATE FUNCTION test_one() RETURNS SETOF text LANGUAGE plpgsql AS $$ BEGIN RETURN NEXT ok(true, 'one'); RETURN NEXT is(1 + 1, 2, 'two'); END $$;
BEGIN;
SELECT plan(8);
SELECT has_table('t');
SELECT has_pk('t');
SELECT col_not_null('t', 'v');
SELECT results_eq('SELECT count(*) FROM t', 'SELECT 300::bigint', 'rows');
SELECT throws_ok('INSERT INTO t VALUES (1, NULL)', '23502');
SELECT bag_hasnt('SELECT v FROM t', $$VALUES ('none')$$);
SELECT lives_ok($$INSERT INTO t VALUES (1000, 'canary-pgtap-Zq7x lives')$$);
SELECT is_empty('SELECT 1 FROM t WHERE id < 0');
SELECT * FROM finish();
COMMIT;
\c -
SELECT * FROM runtests('^test'::text);
-- after kill -9
SELECT count(*), md5(string_agg(v, ',' ORDER BY id)) FROM t;
