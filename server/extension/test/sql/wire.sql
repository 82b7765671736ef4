\set SHOW_CONTEXT never
\set VERBOSITY terse
-- What drivers are told: types of results and parameters, as they are and as base types.
CREATE TABLE w (id sealed_int8 PRIMARY KEY, name sealed_text, n sealed_numeric(8,2), note sealed_text_random, k int);
INSERT INTO w SELECT i, 'name ' || i, i / 2.0, 'note', i % 2 FROM generate_series(1, 12) AS i;
SELECT id, name, n, note, k FROM w WHERE id = 2 \gdesc
SET pgseal.base_types = on;
SELECT id, name, n, note, k, count(*) OVER () FROM w \gdesc
SELECT id, name, n, note, k FROM w WHERE id = 2;
INSERT INTO w VALUES (13, 'x', 1.005, 'y', 3) RETURNING id, n, w \gdesc
INSERT INTO w VALUES (13, 'x', 1.005, 'y', 3) RETURNING id, n;
UPDATE w SET name = 'z' WHERE id = 13 RETURNING name || '!' AS a, name AS b;
DELETE FROM w WHERE id = 13 RETURNING id;
-- sorted and grouped by value, and as before
SELECT id FROM w ORDER BY id DESC LIMIT 3;
SELECT id AS x, id AS y FROM w ORDER BY x LIMIT 2;
SELECT id, count(*) FROM w GROUP BY id ORDER BY id LIMIT 2;
SELECT array_agg(id ORDER BY id) FROM w WHERE id < 4;
SELECT id FROM w WHERE id IN (3, 4) FOR UPDATE;
SELECT DISTINCT ON (k) k, id FROM w ORDER BY k, id;
SELECT DISTINCT name FROM w WHERE id = 5;
SELECT id FROM w WHERE id = 5 UNION SELECT id FROM w WHERE id = 5;
WITH d AS (DELETE FROM w WHERE id = 12 RETURNING id) SELECT id FROM d;
-- what is not the client's own statement stays as it is
CREATE VIEW wv AS SELECT id, name FROM w;
CREATE TABLE copy AS SELECT id, name FROM w;
SELECT attname, atttypid::regtype FROM pg_attribute WHERE attrelid IN ('wv'::regclass, 'copy'::regclass) AND attnum > 0 ORDER BY attrelid, attnum;
CREATE FUNCTION wf() RETURNS SETOF sealed_int8 LANGUAGE sql AS 'SELECT id FROM w ORDER BY id LIMIT 2';
SELECT wf();
DO $$ DECLARE r record; BEGIN SELECT id INTO r FROM w WHERE id = 3; RAISE NOTICE '%', pg_typeof(r.id); END $$;
-- a mask stays a mask, an error an error
CREATE ROLE regress_wire; GRANT SELECT ON w TO regress_wire;
SET ROLE regress_wire;
SELECT name FROM w WHERE id = 3;
RESET ROLE;
SELECT pgseal.set_on_denied('default', 'mask');
SET ROLE regress_wire;
SELECT name FROM w WHERE id = 3;
RESET ROLE;
SELECT pgseal.set_on_denied('default', 'error');
SET pgseal.format = sealed;
SELECT name FROM w \gdesc
RESET pgseal.format; RESET pgseal.base_types;
DROP FUNCTION wf; DROP VIEW wv; DROP TABLE w, copy; DROP ROLE regress_wire;
