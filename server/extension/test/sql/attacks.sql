\set SHOW_CONTEXT never
\set VERBOSITY terse
-- What roles without rights try.
CREATE ROLE regress_owner LOGIN; CREATE ROLE regress_nobody LOGIN;
SELECT pgseal.create_domain('a');
SELECT pgseal.create_type('a_id', 'int4', 'format', 'a'); SELECT pgseal.create_type('a_text', 'text', 'deterministic', 'a');
CREATE TABLE secret (id a_id, v a_text); INSERT INTO secret VALUES (1, 'hidden');
GRANT SELECT ON secret TO regress_nobody;

-- A right without an ACL, as pg_restore -x leaves it, is nobody's; and giving it to one does not give it to all.
UPDATE pg_proc SET proacl = NULL WHERE pronamespace = 'pgseal_decrypt'::regnamespace AND proname = 'a';
SET ROLE regress_nobody;
SELECT pgseal.may_decrypt('a');
SELECT v FROM secret;
RESET ROLE;
SELECT v FROM secret;
SELECT pgseal.grant_decrypt('a', 'regress_owner');
SET ROLE regress_nobody; SELECT pgseal.may_decrypt('a'); RESET ROLE;
SET ROLE regress_owner; SELECT pgseal.may_decrypt('a'); RESET ROLE;
UPDATE pg_proc SET proacl = NULL WHERE pronamespace = 'pgseal_decrypt'::regnamespace AND proname = 'a';
SELECT pgseal.revoke_decrypt('a', 'regress_owner');
SET ROLE regress_nobody; SELECT pgseal.may_decrypt('a'); RESET ROLE;
SELECT pgseal.grant_decrypt('a', 'regress_owner');

-- Who may only store finds no value by trying, where the key domain says so; a closed right is no other's.
SELECT pgseal.create_domain('c');
SELECT pgseal.create_type('c_id', 'int8', 'format', 'c'); SELECT pgseal.create_type('c_text', 'text', 'deterministic', 'c');
SELECT pgseal.create_type('c_note', 'text', 'random', 'c');
CREATE TABLE closed (k int, id c_id UNIQUE, v c_text, note c_note); INSERT INTO closed VALUES (1, 7, 'hidden', 'note');
CREATE TABLE refers (id c_id REFERENCES closed (id));
CREATE VIEW closed_view AS SELECT count(*) FROM closed WHERE id = 7::int8;
GRANT SELECT, INSERT, UPDATE, DELETE ON closed, refers, closed_view TO regress_nobody; GRANT CREATE ON SCHEMA public TO regress_nobody;
SET ROLE regress_nobody;
SELECT g FROM closed JOIN generate_series(1, 10) AS g ON id = g;
PREPARE kept AS SELECT g FROM closed JOIN generate_series(1, 10) AS g ON id = g;
EXECUTE kept;
RESET ROLE;
SET plan_cache_mode = force_generic_plan;
EXECUTE kept;
SELECT pgseal.set_compare('c', 'granted');
SELECT domain, compare FROM pgseal.domains WHERE domain IN ('a', 'c') ORDER BY 1;
SET ROLE regress_nobody; EXECUTE kept; RESET ROLE;
EXECUTE kept;
SET ROLE regress_nobody;
EXECUTE kept;
SELECT g FROM closed JOIN generate_series(1, 10) AS g ON id = g;
SELECT count(*) FROM closed WHERE id = 7;
SELECT count(*) FROM closed WHERE id = ANY ('{6,7}'::bigint[]);
SELECT count(*) FROM closed WHERE v IN ('hidden', 'x');
SELECT count(*) FROM closed GROUP BY id;
SELECT count(DISTINCT id) FROM closed;
SELECT DISTINCT v FROM closed;
SELECT id FROM closed INTERSECT SELECT 7::int8::c_id;
SELECT count(*) FROM closed WHERE CASE id WHEN 7 THEN true END;
SELECT count(*) FROM closed WHERE id IS NOT DISTINCT FROM 7::int8::c_id;
SELECT count(*) FROM closed WHERE ARRAY[id] = ARRAY[7::int8::c_id];
SELECT count(*) FROM closed WHERE hash_array(ARRAY[id]) = hash_array(ARRAY[7::int8::c_id]);
SELECT count(*) FROM closed WHERE ROW(id) OPERATOR(pg_catalog.*=) ROW(7::int8::c_id);
SELECT count(*) FROM closed AS c WHERE c OPERATOR(pg_catalog.*=) c;
SELECT c FROM closed AS c;
SELECT public.c_id_hash(id) FROM closed;
SELECT count(*) FROM closed_view;
SELECT * FROM (SELECT array_agg(id) AS a FROM closed) AS s;
WITH w AS MATERIALIZED (SELECT id FROM closed) SELECT count(*) FROM w;
CREATE TABLE mine AS SELECT id FROM closed;
CREATE TABLE mine (id c_id UNIQUE);
INSERT INTO mine SELECT id FROM closed ON CONFLICT DO NOTHING;
UPDATE closed SET v = 'x' RETURNING id;
DELETE FROM closed WHERE id = 7;
DO $$ BEGIN PERFORM 1 FROM closed WHERE id = 7; END $$;
SET pgseal.format = sealed;
SELECT id FROM closed;
COPY closed (id, v) TO STDOUT;
SELECT 7::int8::c_id;
RESET pgseal.format;
-- to store, count and change is free
INSERT INTO closed VALUES (2, 8, 'mine', 'note'), (3, 9, 'too', NULL);
INSERT INTO closed (k, id) SELECT g, g FROM generate_series(20, 22) AS g;
INSERT INTO closed (id) VALUES (7);
INSERT INTO refers VALUES (8);
UPDATE closed SET v = 'changed' WHERE k = 2;
DELETE FROM closed WHERE k = 3;
SELECT count(*), max(k) FROM closed;
RESET ROLE;
SELECT pgseal.grant_compare('c', 'regress_nobody');
SET ROLE regress_nobody;
EXECUTE kept;
SELECT count(*) FROM closed WHERE id = 7 AND v = 'hidden';
SELECT v FROM closed WHERE id = 7;
RESET ROLE;
SELECT pgseal.revoke_compare('c', 'regress_nobody');
SET ROLE regress_nobody; EXECUTE kept; RESET ROLE;
UPDATE pg_proc SET proacl = NULL WHERE pronamespace = 'pgseal_compare'::regnamespace AND proname = 'c';
SET ROLE regress_nobody; EXECUTE kept; RESET ROLE;
SELECT pgseal.grant_decrypt('c', 'regress_nobody');
SET ROLE regress_nobody; EXECUTE kept; SELECT v FROM closed WHERE id = 7; RESET ROLE;
SELECT pgseal.set_compare('c', 'everybody');
DEALLOCATE kept; RESET plan_cache_mode;
DROP VIEW closed_view; DROP TABLE refers, closed, mine; REVOKE CREATE ON SCHEMA public FROM regress_nobody;

-- Every function has a search_path of its own, or was parsed when it was made. A procedure that commits sets it itself.
SELECT p.oid::regprocedure FROM pg_proc AS p JOIN pg_language AS l ON l.oid = p.prolang
WHERE l.lanname IN ('sql', 'plpgsql') AND p.prosqlbody IS NULL AND NOT coalesce(p.proconfig::text LIKE '%search_path=pg_catalog, pg_temp%', false)
  AND (p.pronamespace IN ('pgseal'::regnamespace, '_pgseal'::regnamespace, 'pgseal_decrypt'::regnamespace, 'pgseal_compare'::regnamespace)
       OR EXISTS (SELECT FROM pg_depend AS d JOIN pg_extension AS e ON e.oid = d.refobjid WHERE d.objid = p.oid AND d.deptype = 'e' AND e.extname = 'pgseal'));

-- Whose code runs in a rotation, and as whom: none of triggers, checks and rules; a partition key's as the owner.
CREATE SCHEMA regress_attack; GRANT ALL ON SCHEMA regress_attack TO regress_owner;
-- a session of the owner's: in one of a superuser's, functions could SET ROLE NONE
\c - regress_owner
\set SHOW_CONTEXT never
\set VERBOSITY terse
CREATE TABLE regress_attack.seen (what text, who name);
CREATE FUNCTION regress_attack.note(what text) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO regress_attack.seen VALUES (what, current_user); RETURN true; END $$;
CREATE FUNCTION regress_attack.take(what text) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN
    PERFORM regress_attack.note(what);
    BEGIN EXECUTE 'ALTER ROLE regress_owner SUPERUSER'; EXCEPTION WHEN OTHERS THEN NULL; END;
    BEGIN EXECUTE 'SET ROLE NONE'; PERFORM regress_attack.note(what || ', role none');
    EXCEPTION WHEN insufficient_privilege THEN NULL; END;
    RETURN true; END $$;
CREATE FUNCTION regress_attack.trigger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM regress_attack.take('trigger'); RETURN NEW; END $$;
CREATE FUNCTION regress_attack.key(k int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
    PERFORM regress_attack.take('partition key'); RETURN k; END $$;
CREATE TABLE regress_attack.t (id a_id PRIMARY KEY, v a_text UNIQUE, n int CHECK (regress_attack.take('check')), CHECK (id > 0));
INSERT INTO regress_attack.t SELECT i, 'v' || i, i FROM generate_series(1, 20) AS i;
CREATE TRIGGER always BEFORE UPDATE ON regress_attack.t FOR EACH ROW EXECUTE FUNCTION regress_attack.trigger();
ALTER TABLE regress_attack.t ENABLE ALWAYS TRIGGER always;
CREATE TRIGGER statement AFTER UPDATE ON regress_attack.t FOR EACH STATEMENT EXECUTE FUNCTION regress_attack.trigger();
ALTER TABLE regress_attack.t ENABLE ALWAYS TRIGGER statement;
CREATE TABLE regress_attack.p (id a_id, k int) PARTITION BY LIST (regress_attack.key(k));
CREATE TABLE regress_attack.p1 PARTITION OF regress_attack.p FOR VALUES IN (1);
CREATE TABLE regress_attack.h (id a_id PRIMARY KEY, v int CHECK (regress_attack.take('check of a partition')), CHECK (id > 0)) PARTITION BY HASH (id);
CREATE TABLE regress_attack.h0 PARTITION OF regress_attack.h FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE regress_attack.h1 PARTITION OF regress_attack.h FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO regress_attack.h SELECT i, i FROM generate_series(1, 50) AS i;
INSERT INTO regress_attack.p VALUES (1, 1), (2, 1);
ALTER TABLE regress_attack.t ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY nothing ON regress_attack.t USING (regress_attack.take('policy') AND false);
CREATE FUNCTION regress_attack.equal(name, name) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN
    PERFORM regress_attack.take('operator'); RETURN $1::text OPERATOR(pg_catalog.=) $2::text; END $$;
CREATE OPERATOR regress_attack.= (LEFTARG = name, RIGHTARG = name, FUNCTION = regress_attack.equal);
CREATE FUNCTION regress_attack.format(text, name) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
    PERFORM regress_attack.take('function'); RETURN pg_catalog.format($1, $2); END $$;
CREATE RULE always AS ON UPDATE TO regress_attack.p DO ALSO SELECT regress_attack.take('rule');
ALTER TABLE regress_attack.p ENABLE ALWAYS RULE always;
\c - postgres
\set SHOW_CONTEXT never
\set VERBOSITY terse
-- made by the owner's own statements
DELETE FROM regress_attack.seen;
SET search_path = regress_attack, pg_catalog, public;
CALL pgseal.rotate('a');
RESET search_path;
ALTER TABLE regress_attack.p DISABLE RULE always;
SET search_path = regress_attack, pg_catalog, public;
CALL pgseal.rotate('a', 1);
SELECT pgseal.add_key('a') > 0 AS added;
SELECT pgseal.set_on_denied('a', 'error');
RESET search_path;
SELECT DISTINCT what, who FROM regress_attack.seen ORDER BY 1, 2;
SELECT rolsuper FROM pg_roles WHERE rolname = 'regress_owner';
SELECT rotating FROM pgseal.domains WHERE domain = 'a';
SELECT (SELECT count(*) FROM regress_attack.t WHERE v = 'v' || id::int), (SELECT sum(id) FROM regress_attack.p), (SELECT count(*) FROM regress_attack.h WHERE id = v);
SELECT current_user, current_setting('search_path');
-- they are there again
ALTER TABLE regress_attack.t NO FORCE ROW LEVEL SECURITY;
\c - regress_owner
\set SHOW_CONTEXT never
\set VERBOSITY terse
INSERT INTO regress_attack.t VALUES (1, 'again', 1);
INSERT INTO regress_attack.t VALUES (0, 'zero', 1);
-- nobody else runs a batch
SELECT _pgseal.rotate_batch('regress_attack.t', 'regress_attack.t'::regclass, '{v}', 1, 2, 0, 1);
CALL pgseal.rotate('a');
\c - postgres
\set SHOW_CONTEXT never
\set VERBOSITY terse
GRANT USAGE ON SCHEMA _pgseal TO regress_owner;
\c - regress_owner
\set SHOW_CONTEXT never
\set VERBOSITY terse
SELECT _pgseal.rotate_batch('regress_attack.t', 'regress_attack.t'::regclass, '{v}', 1, 2, 0, 1);
SELECT _pgseal.recrypt(v, 1, 2) FROM regress_attack.t;
\c - postgres
\set SHOW_CONTEXT never
\set VERBOSITY terse
REVOKE USAGE ON SCHEMA _pgseal FROM regress_owner;
-- a generated column of a sealed one cannot be made anew
CREATE TABLE regress_attack.g (id a_id, plain int GENERATED ALWAYS AS (id) STORED);
CALL pgseal.rotate('a');
SET client_min_messages = warning;
DROP SCHEMA regress_attack CASCADE; DROP TABLE secret;
DROP OWNED BY regress_owner, regress_nobody; DROP ROLE regress_owner, regress_nobody;
