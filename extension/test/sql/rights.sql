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
