\set SHOW_CONTEXT never
-- Randomised values: a new key at once, old values stay readable.
SELECT pgseal.create_domain('r');
SELECT pgseal.create_type('r_id', 'int4', 'format', 'r'); SELECT pgseal.create_type('r_num', 'numeric', 'format', 'r');
SELECT pgseal.create_type('r_text', 'text', 'deterministic', 'r'); SELECT pgseal.create_type('r_note', 'text', 'random', 'r');
CREATE TABLE r_main (id r_id PRIMARY KEY, name r_text UNIQUE, n r_num(8,2), note r_note);
CREATE TABLE r_ref (main r_id REFERENCES r_main ON DELETE CASCADE, k int, UNIQUE (main, k));
CREATE TABLE r_part (id r_id PRIMARY KEY, t r_text) PARTITION BY HASH (id);
CREATE TABLE r_part0 PARTITION OF r_part FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE r_part1 PARTITION OF r_part FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE INDEX r_n ON r_main (n);
INSERT INTO r_main SELECT i, 'name ' || i, i / 4.0, 'note ' || i FROM generate_series(1, 3000) AS i;
INSERT INTO r_ref SELECT i, j FROM generate_series(1, 3000) AS i, generate_series(1, 2) AS j;
INSERT INTO r_part SELECT i, 'part ' || i FROM generate_series(1, 1000) AS i;
CREATE TABLE before AS SELECT md5(string_agg(id || name || n || note, ',' ORDER BY id)) AS main FROM r_main;
SELECT pgseal.add_key('r');
INSERT INTO r_main VALUES (3001, 'name 3001', 1, 'new key');
SELECT note FROM r_main WHERE id IN (1, 3001) ORDER BY id;
DELETE FROM r_main WHERE id = 3001;
-- obstacles are named
CREATE VIEW r_view AS SELECT * FROM r_main WHERE name = 'name 5';
CREATE MATERIALIZED VIEW r_mat AS SELECT id FROM r_main LIMIT 1;
CALL pgseal.rotate('r');
DROP VIEW r_view; DROP MATERIALIZED VIEW r_mat;
CREATE DOMAIN r_domain AS r_id CHECK (VALUE <> 5);
CREATE DOMAIN r_list AS r_text[];
CREATE TABLE r_wrapped (a r_domain, b r_domain[], c r_list, d r_text[], e r_ref, f r_ref[], g int);
INSERT INTO r_wrapped VALUES (7, '{8}', '{x}', '{y}', (1, 2), ARRAY[(1, 2)::r_ref], 3);
CALL pgseal.rotate('r');
SELECT * FROM r_wrapped;
DROP TABLE r_wrapped; DROP DOMAIN r_domain, r_list;
CREATE VIEW r_view AS SELECT * FROM r_main WHERE name = 'name 5'::text;
-- one batch, then the connection breaks: resumed by another
CREATE FUNCTION stop_after() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF (SELECT count(*) FROM _pgseal.rotation_table WHERE next_block > 0) >= 1 THEN RAISE EXCEPTION 'stopped'; END IF; RETURN NULL; END $$;
CREATE TRIGGER stop AFTER UPDATE ON _pgseal.rotation_table FOR EACH STATEMENT EXECUTE FUNCTION stop_after();
ALTER TABLE _pgseal.rotation_table ENABLE ALWAYS TRIGGER stop;
CREATE TABLE lookup_before AS SELECT lookup_version FROM pgseal.domains WHERE domain = 'r';
CALL pgseal.rotate('r', 4);
SELECT rotating FROM pgseal.domains WHERE domain = 'r';
SELECT id FROM r_main LIMIT 1;
SELECT 1::r_id;
SELECT note FROM r_main WHERE note = 'note 7';
SELECT relation, rows_done, percent FROM pgseal.rotation_progress WHERE blocks > 0 ORDER BY relation::text;
DROP TRIGGER stop ON _pgseal.rotation_table; DROP FUNCTION stop_after;
\c -
\set SHOW_CONTEXT never
CALL pgseal.rotate('r', 4);
SELECT lookup_version > (SELECT lookup_version FROM lookup_before) AS newer, rotating FROM pgseal.domains WHERE domain = 'r';
SELECT count(*) FROM pgseal.rotation_progress;
SELECT (SELECT main FROM before) = md5(string_agg(id || name || n || note, ',' ORDER BY id)) AS same FROM r_main;
SELECT count(*) FROM r_main JOIN r_ref ON main = id;
SELECT count(*), min(id), max(t) FROM r_part; SELECT * FROM r_part WHERE id = 77;
SELECT * FROM r_view;
\d r_main
\d r_ref
\d r_part
INSERT INTO r_ref VALUES (5000, 1);
DELETE FROM r_main WHERE id = 1; SELECT count(*) FROM r_ref WHERE main = 1;
DROP VIEW r_view; DROP TABLE r_ref, r_main, r_part, before, lookup_before;
-- a new key above the column keys
SELECT pgseal.change_provider('file:/nowhere/key');
