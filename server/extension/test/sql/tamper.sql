-- What was changed outside is an error that names the type, never garbage.
CREATE TABLE sealed (kind text, v text);
SET pgseal.format = sealed;
INSERT INTO sealed SELECT 'text', format('%s', 'secret text'::text::sealed_text);
INSERT INTO sealed SELECT 'random', format('%s', 'secret text'::text::sealed_text_random);
INSERT INTO sealed SELECT 'wide', format('%s', 12345.678::sealed_numeric_wide);
INSERT INTO sealed SELECT 'bytea', format('%s', 'secret text'::bytea::sealed_bytea);
INSERT INTO sealed SELECT 'card', format('%s', 'secret text'::text::card_number);
INSERT INTO sealed SELECT 'uuid', format('%s', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid::sealed_uuid);
RESET pgseal.format;
-- reads a sealed form as a type and opens it
CREATE FUNCTION opens(form text, type text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE result text;
BEGIN
    SET LOCAL pgseal.format = sealed;
    EXECUTE format('CREATE TEMP TABLE IF NOT EXISTS t_%s (v %s)', type, type);
    EXECUTE format('DELETE FROM t_%s', type);
    EXECUTE format('INSERT INTO t_%s VALUES (%L)', type, form);
    SET LOCAL pgseal.format = plain;
    EXECUTE format('SELECT v::text FROM t_%s', type) INTO result;
    RETURN result;
EXCEPTION WHEN data_corrupted THEN RETURN 'error: ' || SQLERRM;
END $$;
SET client_min_messages = warning;
-- the sealed form of a plain value
CREATE FUNCTION sealed_form(plain text, type text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE result text;
BEGIN
    SET LOCAL pgseal.format = plain;
    EXECUTE format('CREATE TEMP TABLE IF NOT EXISTS f_%s (v %s)', type, type);
    EXECUTE format('DELETE FROM f_%s', type);
    EXECUTE format('INSERT INTO f_%s VALUES (%L)', type, plain);
    SET LOCAL pgseal.format = sealed;
    EXECUTE format('SELECT format(''%%s'', v) FROM f_%s', type) INTO result;
    SET LOCAL pgseal.format = plain;
    RETURN result;
END $$;
SELECT kind, opens(v, CASE kind WHEN 'text' THEN 'sealed_text' WHEN 'random' THEN 'sealed_text_random' WHEN 'wide' THEN 'sealed_numeric_wide'
    WHEN 'bytea' THEN 'sealed_bytea' WHEN 'card' THEN 'card_number' ELSE 'sealed_uuid' END) FROM sealed;
-- every bit counts
SELECT kind, count(*) FROM (
    SELECT kind, opens('pgseal:1:' || encode(set_bit(b, i, 1 - get_bit(b, i)), 'hex'), CASE kind WHEN 'text' THEN 'sealed_text' ELSE 'sealed_text_random' END) AS o
    FROM sealed, LATERAL (SELECT decode(substr(v, 10), 'hex') AS b) AS d, generate_series(0, length(b) * 8 - 1) AS i WHERE kind IN ('text', 'random')) AS x
WHERE o NOT LIKE 'error: cannot %sealed_text%' GROUP BY kind;
-- cut, lengthened, empty
SELECT opens('pgseal:1:', 'sealed_text');
SELECT opens(v || '00', 'sealed_text') FROM sealed WHERE kind = 'text';
SELECT opens(left(v, -2), 'sealed_text_random') FROM sealed WHERE kind = 'random';
-- moved to another type or domain
SELECT opens(v, 'sealed_bytea') FROM sealed WHERE kind = 'text';
SELECT opens(v, 'card_number') FROM sealed WHERE kind = 'text';
SELECT opens(v, 'sealed_text') FROM sealed WHERE kind = 'card';
SELECT opens(v, 'sealed_text_random') FROM sealed WHERE kind = 'text';
SELECT opens(v, 'sealed_uuid') FROM sealed WHERE kind = 'bytea';
-- every base type has a code of its own: bytes that a user chose for one are never the inner form of another
SELECT pgseal.create_type('t_' || b, b::regtype, 'random') FROM unnest('{varchar,bpchar,name,varbit,json,xml,cidr,inet,path,polygon,tsvector}'::text[]) AS b;
SELECT b, o FROM unnest('{bpchar,name,varbit,json,xml,cidr,inet,path,polygon,tsvector,jsonb}'::text[]) AS b,
    opens(sealed_form(E'\x02 abcdefghijklmnopqrstuvwxyz', 't_varchar'), CASE b WHEN 'jsonb' THEN 'sealed_jsonb_random' ELSE 't_' || b END) AS o;
SELECT b, o FROM unnest('{cidr,inet,varchar}'::text[]) AS b, opens(sealed_form(E'\x02 abcdefghijklmnopqrstuvwxyz', 't_name'), 't_' || b) AS o;
SELECT opens(sealed_form('as it is', 't_varchar'), 't_varchar');
-- the display scale of a deterministic numeric has no proof, but cuts nothing off
SELECT scale, opens('pgseal:1:' || substr(v, 10, length(v) - 13) || scale, 'sealed_numeric_wide')
    FROM (SELECT sealed_form('123.450', 'sealed_numeric_wide') AS v) AS s, unnest('{0000,0100,0200,0300,0500,0040,ffff}'::text[]) AS scale;
SELECT opens('pgseal:1:' || substr(v, 10, length(v) - 13) || '0100', 'sealed_numeric_wide') FROM (SELECT sealed_form('NaN', 'sealed_numeric_wide') AS v) AS s;
SELECT x, opens(sealed_form(x::text, 'sealed_numeric_wide'), 'sealed_numeric_wide')::numeric - x AS difference, length(opens(sealed_form(x::text, 'sealed_numeric_wide'), 'sealed_numeric_wide'))
    FROM unnest(ARRAY[1e-30, 1.5000]::numeric[]) AS x;
SELECT opens(sealed_form(x, 'sealed_numeric_wide'), 'sealed_numeric_wide') = x AS same, length(x)
    FROM unnest(ARRAY['0.' || repeat('0', 2999) || '1', '0.1' || repeat('0', 2999)]) AS x;
-- format-preserving values have no proof; dates and the like notice most damage
SELECT opens('pgseal:1:0011223344556677', 'sealed_int8') ~ '^-?[0-9]+$' AS another_number;
SELECT count(*) > 60 AS often_noticed FROM generate_series(1, 200) AS i WHERE opens('pgseal:1:' || substr(md5(i::text), 1, 8), 'sealed_date') LIKE 'error: cannot open a value of type sealed_date%';
SELECT count(*) > 100 AS mostly_noticed FROM generate_series(1, 200) AS i WHERE opens('pgseal:1:' || substr(md5(i::text), 1, 16), 'sealed_numeric') LIKE 'error: cannot open a value of type sealed_numeric%';
-- a key that is gone
BEGIN;
SELECT v FROM (SELECT 'x'::sealed_text_random AS v) AS s;
DELETE FROM _pgseal.key WHERE domain = 'default';
SELECT 'x'::sealed_text_random;
ROLLBACK;
SELECT 'back'::sealed_text_random;
-- another key of the same name
BEGIN;
UPDATE _pgseal.key SET wrapped = _pgseal.wrap_new((SELECT id FROM _pgseal.domain WHERE domain = 'default'), 1, 'provider', '\x00') WHERE domain = 'default' AND version = 1;
SELECT opens(v, 'sealed_text') FROM sealed WHERE kind = 'text';
ROLLBACK;
-- a wrapped key that was changed
BEGIN;
UPDATE _pgseal.key SET wrapped = set_byte(wrapped, 40, get_byte(wrapped, 40) # 1) WHERE domain = 'default' AND version = 1;
\set VERBOSITY terse
SELECT 'x'::sealed_text;
ROLLBACK;
RESET client_min_messages;
DROP TABLE sealed; DROP FUNCTION opens, sealed_form;
