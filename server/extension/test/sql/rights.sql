\set SHOW_CONTEXT never
-- Who may decrypt, who may only insert and compare.
CREATE ROLE regress_reader; CREATE ROLE regress_writer; CREATE ROLE regress_team; GRANT regress_team TO regress_reader;
CREATE TABLE person (id sealed_int8 PRIMARY KEY, name sealed_text, note sealed_text_random, born sealed_date, raw sealed_bytea);
GRANT SELECT, INSERT, UPDATE ON person TO regress_reader, regress_writer;
SELECT pgseal.grant_decrypt('default', 'regress_team');
SET ROLE regress_writer;
INSERT INTO person VALUES (1, 'Ada', 'first', '1815-12-10', '\x01'), (2, 'Alan', 'second', '1912-06-23', '\x02');
SELECT count(*) FROM person WHERE id = 1 AND name = 'Ada' AND born = '1815-12-10';
SELECT pgseal.may_decrypt('default');
SELECT name FROM person;
SELECT note FROM person;
SELECT id::int8 FROM person;
SELECT count(*) FROM person WHERE born < date '1900-01-01';
SELECT count(*) FROM person WHERE name LIKE 'A%';
SELECT id FROM person ORDER BY id;
SELECT min(born) FROM person;
SELECT row_to_json(person) FROM person;
COPY person (name) TO STDOUT;
SET pgseal.format = sealed;
SELECT format('%s', name) ~ '^pgseal:1:' FROM person;
RESET pgseal.format;
SET ROLE regress_reader;
SELECT * FROM person ORDER BY id;
SELECT pgseal.may_decrypt('default');
RESET ROLE;
SELECT pgseal.revoke_decrypt('default', 'regress_team');
SET ROLE regress_reader;
SELECT name FROM person;
RESET ROLE;
-- a violated key stays one for who may not decrypt; any other use of the values is an error
CREATE TABLE twice (k int, id sealed_int8, v sealed_text UNIQUE, PRIMARY KEY (k, id));
ALTER TABLE twice ADD EXCLUDE USING btree (v WITH =);
INSERT INTO twice VALUES (1, 7, 'seven');
GRANT SELECT, INSERT, UPDATE ON twice TO regress_reader;
SET ROLE regress_reader;
INSERT INTO person (id) VALUES (1);
\echo :LAST_ERROR_SQLSTATE
INSERT INTO twice VALUES (1, 7, 'eight');
\echo :LAST_ERROR_SQLSTATE
INSERT INTO twice VALUES (2, 7, 'seven');
\echo :LAST_ERROR_SQLSTATE
UPDATE twice SET v = id::text;
\echo :LAST_ERROR_SQLSTATE
INSERT INTO twice VALUES (1, 7, 'eight') RETURNING v;
INSERT INTO twice VALUES (3, 7, 'nine') RETURNING v;
DO $$ BEGIN INSERT INTO person (id) VALUES (1); EXCEPTION WHEN unique_violation THEN RAISE NOTICE '%', SQLERRM; END $$;
RESET ROLE;
CREATE UNIQUE INDEX ON twice (id);
INSERT INTO twice VALUES (4, 7, 'ten');
DROP TABLE twice;
-- a security definer function decrypts for those who may call it
CREATE FUNCTION name_of(int8) RETURNS text LANGUAGE sql SECURITY DEFINER AS 'SELECT name FROM person WHERE id = $1';
SET ROLE regress_writer; SELECT name_of(1); RESET ROLE;
-- a mask instead of an error
SELECT pgseal.set_on_denied('default', 'mask');
SET ROLE regress_writer;
SELECT id, name, note, born, id::int8 AS cast, name || '!' AS expression FROM person WHERE id = 1;
SELECT count(*) FROM person WHERE born < date '1900-01-01';
INSERT INTO person (id) VALUES (1);
RESET ROLE;
SELECT pgseal.set_on_denied('default', 'error');
SELECT pgseal.set_on_denied('nothing', 'mask');
-- what fits a precision, and what a value is rounded to, tells about it
CREATE TABLE price (id int, v sealed_numeric(12,2), w sealed_numeric_wide(12,2), r sealed_numeric_random(12,2) DEFAULT '7.777');
INSERT INTO price VALUES (1, 1234.56, 1234.56, 1234.56);
CREATE TABLE other (v sealed_numeric(3,0), w sealed_numeric_wide(3,0));
GRANT SELECT, INSERT, UPDATE ON price, other TO regress_writer;
SET ROLE regress_writer;
SELECT count(v::sealed_numeric(3,0)) FROM price;
SELECT count(v::sealed_numeric(5,0)) FROM price;
SELECT count(w::sealed_numeric_wide(3,0)) FROM price;
SELECT count(r::sealed_numeric_random(5,0)) FROM price;
SELECT count(*) FROM price WHERE v::sealed_numeric(4,0) = 1235;
INSERT INTO other (v) SELECT v FROM price;
INSERT INTO other (w) SELECT w FROM price;
DO $$ DECLARE x sealed_numeric(3,0); BEGIN SELECT v INTO x FROM price; END $$;
-- values of one's own are rounded without the right
INSERT INTO price VALUES (2, '2.345', '2.345', '2.345'), (3, 3.456, 3.456, 3.456);
INSERT INTO price (id, v, w) SELECT 4, 4.567::sealed_numeric, '4.567'::sealed_numeric_wide;
PREPARE ins (sealed_numeric, sealed_numeric_wide, sealed_numeric_random) AS INSERT INTO price VALUES (5, $1, $2, $3);
EXECUTE ins ('5.678', '5.678', '5.678');
DEALLOCATE ins;
INSERT INTO price (id, v) VALUES (6, '12345678901.5');
INSERT INTO price (id, v) SELECT 7, v FROM price WHERE id = 1;
SET pgseal.format = sealed;
INSERT INTO other (v) SELECT v FROM price WHERE id = 1;
SELECT count(v::sealed_numeric(5,0)) FROM price;
RESET pgseal.format;
RESET ROLE;
SELECT * FROM price ORDER BY id;
DROP TABLE price, other;
-- row security, triggers
ALTER TABLE person ENABLE ROW LEVEL SECURITY;
CREATE POLICY only_ada ON person USING (name = 'Ada');
SET ROLE regress_writer; SELECT count(*) FROM person; RESET ROLE;
CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.note := 'changed from ' || OLD.name; RETURN NEW; END $$;
CREATE TRIGGER audit BEFORE UPDATE ON person FOR EACH ROW EXECUTE FUNCTION audit();
UPDATE person SET name = 'Ada L.' WHERE id = 1 RETURNING name, note;
-- handling keys is for superusers
\set VERBOSITY terse
SET ROLE regress_writer;
SELECT pgseal.create_domain('mine');
SELECT pgseal.add_key('default');
SELECT pgseal.create_type('mine', 'text', 'random');
SET pgseal.helper = '/bin/false';
SELECT count(*) FROM pg_settings WHERE name = 'pgseal.provider';
RESET ROLE;
DROP TABLE person; DROP FUNCTION audit, name_of; DROP ROLE regress_reader, regress_writer, regress_team;
-- secrets come with the connection or not at all
SET pgseal.passphrase = 'open sesame';
SELECT set_config('pgseal.passphrase', 'open sesame', false);
SELECT pgseal.create_domain('spoken', 'passphrase');
