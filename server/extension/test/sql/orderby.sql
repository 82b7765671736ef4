-- ORDER BY and everything like it is by value, or an error; never by ciphertext.
CREATE TABLE o (id sealed_int8 PRIMARY KEY, grp sealed_text, d sealed_date, n int);
INSERT INTO o SELECT i, (ARRAY['c', 'a', 'b'])[1 + i % 3], date '2024-01-01' + (i * 7) % 10, i FROM generate_series(1, 10) AS i;
SELECT id FROM o ORDER BY id;
SELECT id FROM o ORDER BY id DESC NULLS LAST LIMIT 3;
SELECT id, d FROM o ORDER BY d DESC, id LIMIT 4;
SELECT n FROM o ORDER BY grp, d LIMIT 4;
SELECT DISTINCT grp FROM o ORDER BY grp DESC;
SELECT DISTINCT ON (grp) grp, id FROM o ORDER BY grp, id DESC;
SELECT grp, count(*) FROM o GROUP BY grp ORDER BY grp;
SELECT grp, max(id) FROM o GROUP BY grp HAVING grp > 'a' ORDER BY max(id), grp;
SELECT id, rank() OVER (PARTITION BY grp ORDER BY d DESC) FROM o ORDER BY id;
SELECT id, sum(n) OVER w, lag(id) OVER w FROM o WINDOW w AS (ORDER BY d) ORDER BY d LIMIT 3;
SELECT array_agg(id::int8 ORDER BY d), string_agg(grp, ',' ORDER BY grp DESC, id) FROM o;
SELECT * FROM (SELECT id FROM o ORDER BY id LIMIT 2) AS s ORDER BY id DESC;
WITH x AS (SELECT id FROM o ORDER BY id DESC LIMIT 2) SELECT * FROM x;
SELECT (SELECT id FROM o AS i WHERE i.grp = o.grp ORDER BY id LIMIT 1) FROM o ORDER BY n LIMIT 3;
SELECT id FROM o ORDER BY id FETCH FIRST 2 ROWS WITH TIES;
SELECT id FROM o WHERE n < 3 ORDER BY id FOR UPDATE;
SELECT id FROM o ORDER BY id USING ~<~ LIMIT 2;
CREATE VIEW v AS SELECT id, grp FROM o ORDER BY id DESC;
SELECT * FROM v LIMIT 2;
SELECT pg_get_viewdef('v') ~ 'ORDER BY (o.)?id DESC' AS as_written;
CREATE FUNCTION first_ids() RETURNS SETOF sealed_int8 LANGUAGE sql STABLE AS 'SELECT id FROM o ORDER BY id LIMIT 3';
SELECT * FROM first_ids();
CREATE FUNCTION first_ids_atomic() RETURNS SETOF sealed_int8 LANGUAGE sql STABLE BEGIN ATOMIC SELECT id FROM o ORDER BY id LIMIT 3; END;
SELECT * FROM first_ids_atomic();
CREATE FUNCTION loop_ids() RETURNS text LANGUAGE plpgsql AS $$ DECLARE r record; s text = ''; BEGIN FOR r IN SELECT id FROM o ORDER BY id LOOP s = s || r.id || ' '; END LOOP; RETURN s; END $$;
SELECT loop_ids();
BEGIN; DECLARE c CURSOR FOR SELECT id FROM o ORDER BY id; FETCH 2 FROM c; COMMIT;
COPY (SELECT id FROM o ORDER BY id LIMIT 2) TO STDOUT;
PREPARE p AS SELECT id FROM o ORDER BY id DESC LIMIT 1; EXECUTE p; EXECUTE p;
CREATE TABLE o2 AS SELECT id FROM o ORDER BY id; SELECT * FROM o2 LIMIT 2;
-- errors
SELECT id FROM o UNION SELECT id FROM o ORDER BY id;
SELECT * FROM (SELECT id FROM o UNION SELECT id FROM o) AS s ORDER BY id LIMIT 2;
SELECT greatest(id, 5::sealed_int8) FROM o;
SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY id) FROM o;
SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY id::int8) FROM o;
SELECT array_agg(DISTINCT id ORDER BY id) FROM o;
SELECT o FROM o ORDER BY o;
SELECT ROW(id, n) FROM o ORDER BY ROW(id, n);
SELECT ARRAY[id] FROM o ORDER BY 1;
SELECT ARRAY[1::sealed_int8] < ARRAY[2::sealed_int8];
SELECT ROW(1::sealed_int8, 1) < ROW(2::sealed_int8, 1);
SELECT v FROM (VALUES (ROW(1::sealed_int8, 1)), (ROW(2::sealed_int8, 1))) AS t(v) GROUP BY v;
SELECT ROW(1::sealed_int8) = ROW(1::sealed_int8) AS equal_rows, ARRAY[1::sealed_int8] = ARRAY[1::sealed_int8] AS equal_arrays;
SELECT grp FROM (VALUES ('x'::sealed_text_random)) AS v(grp) GROUP BY grp;
SELECT grp FROM (VALUES ('x'::sealed_text_random)) AS v(grp) ORDER BY grp;
-- 2000 random pairs: < on sealed values is < on values
SELECT count(*) FROM (SELECT (random() * 1e6)::int4 - 500000 AS a, (random() * 1e6)::int4 - 500000 AS b FROM generate_series(1, 2000)) AS r
WHERE (a::sealed_int4 < b::sealed_int4) <> (a < b) OR (a::int8::sealed_int8 >= b) <> (a >= b) OR (a::sealed_int4 = b::sealed_int4) <> (a = b)
   OR (a::numeric::sealed_numeric <= b::numeric::sealed_numeric) <> (a <= b);
DROP VIEW v; DROP FUNCTION first_ids, first_ids_atomic, loop_ids; DROP TABLE o, o2;
-- a session without the module: the first sort says so, the next one is right
CREATE TABLE late AS SELECT i::int8::sealed_int8 AS id FROM generate_series(1, 5) AS i;
ALTER DATABASE contrib_regression RESET session_preload_libraries;
\c -
SELECT id FROM late ORDER BY id;
SELECT id FROM late ORDER BY id;
\c -
CREATE INDEX ON late (id);
SELECT id FROM late ORDER BY id LIMIT 1;
ALTER DATABASE contrib_regression SET session_preload_libraries = 'pgseal';
\c -
SELECT id FROM late ORDER BY id;
DROP TABLE late;
