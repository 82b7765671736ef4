-- Every type, in and out, at its limits.
SELECT '-2147483648'::sealed_int4, '2147483647'::sealed_int4, 0::sealed_int4;
SELECT '2147483648'::sealed_int4;
SELECT '-9223372036854775808'::sealed_int8, '9223372036854775807'::sealed_int8;
SELECT '4713-01-01 BC'::sealed_date, 'infinity'::sealed_date, '-infinity'::sealed_date, '5874897-12-31'::sealed_date;
SET datestyle = 'ISO, YMD'; SET timezone = 'UTC';
SELECT '294276-12-31 23:59:59.999999'::sealed_timestamp, 'infinity'::sealed_timestamp, '2024-02-29 12:00'::sealed_timestamptz;
SELECT v::sealed_numeric FROM unnest('{0,0.00,1,-1,1.10,1.1,0.000000000000001,-0.5,1234567890123456,0.12345678901234500000,1.50000000000000000000,123456789012.50000000000,100,1e15,9999999999999999,-9999999999999999,NaN,Infinity,-Infinity}'::numeric[]) AS v;
SELECT '12345678901234567'::sealed_numeric;
SELECT '0.0000000000000001'::sealed_numeric;
SELECT '1e17'::sealed_numeric, '1e18'::sealed_numeric;
SELECT '1e40'::sealed_numeric_wide, '1.500'::sealed_numeric_wide, '-0.0000000000000000000001'::sealed_numeric_wide, 'NaN'::sealed_numeric_wide, '-Infinity'::sealed_numeric_wide;
SELECT ''::sealed_text, 'a'::sealed_text, repeat('x', 5)::sealed_text, length(repeat('y', 100000)::sealed_text);
SELECT ''::sealed_bytea, '\x00ff'::sealed_bytea, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::sealed_uuid;
SELECT 'r'::sealed_text_random, '\x01'::sealed_bytea_random, 1.50::sealed_numeric_random, 4::sealed_int4_random, 8::sealed_int8_random,
    1.5::float8::sealed_float8_random, true::sealed_bool_random, '2024-01-01'::sealed_date_random, '{"a": [1]}'::sealed_jsonb_random,
    'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::sealed_uuid_random;
-- sizes: those of the plain type; 17 and 29 bytes more when authenticated
SELECT pg_column_size(1::sealed_int4) AS int4, pg_column_size(1::sealed_int8) AS int8, pg_column_size('2024-01-01'::sealed_date) AS date,
    pg_column_size(1.23::sealed_numeric) AS numeric;
CREATE TABLE sizes (t sealed_text, r sealed_text_random, u sealed_uuid);
INSERT INTO sizes VALUES ('sixteen bytes...', 'sixteen bytes...', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11');
SELECT pg_column_size(t) AS text, pg_column_size(r) AS random, pg_column_size(u) AS uuid FROM sizes;
DROP TABLE sizes;
-- precision and scale
CREATE TABLE money (a sealed_numeric(10,2), w sealed_numeric_wide(40,3), r sealed_numeric_random(6,1));
INSERT INTO money VALUES (1.005, 1.0005, 1.05), ('2.345', '2', '3'), (7, 8, 9), (1e3, 1e3, 1e3);
SELECT * FROM money;
INSERT INTO money (a) VALUES (123456789.1);
SELECT 1.25::sealed_numeric::sealed_numeric(10,1);
CREATE TABLE bad (a sealed_numeric(17,2));
CREATE TABLE bad (a sealed_text(5));
DROP TABLE money;
-- a numeric that was opened has the very bytes of the one that was sealed, computed or from the memo, and its text gives the same
CREATE TABLE opened AS SELECT s * m * ('1e-' || e)::numeric AS v FROM unnest('{1,-1}'::numeric[]) AS s, generate_series(0, 15) AS e,
    unnest('{0,1,7,10,99,100,9999,10000,10001,99990000,12345678,100000000,123400005678,1000000000000000,9999999999999999}'::numeric[]) AS m;
INSERT INTO opened SELECT trim_scale(v) FROM opened UNION SELECT round(v, d) FROM opened, unnest('{0,2,4,5,9}'::int[]) AS d;
DELETE FROM opened WHERE scale(v) > 15 OR scale(trim_scale(v)) + length(trunc(abs(v))::text) > 16;
SELECT count(*) > 500 AS many, count(*) FILTER (WHERE numeric_send(v) <> numeric_send(v::sealed_numeric::numeric)
        OR pg_column_size(+v) <> pg_column_size(v::sealed_numeric::numeric)
        OR numeric_send(v) <> numeric_send(sealed_numeric_in(textout(v::text), 0, -1)::numeric)) AS differ FROM opened;
CREATE TABLE opened_sealed (v numeric(10,3), s sealed_numeric(10,3));
INSERT INTO opened_sealed SELECT v, v FROM opened WHERE abs(v) < 1000000;
INSERT INTO opened_sealed SELECT v, sealed_numeric_in(textout(v::text), 0, (10 << 16 | 3) + 4) FROM opened WHERE abs(v) < 1000000;
SELECT count(*) > 500 AS many, count(*) FILTER (WHERE numeric_send(v) <> numeric_send(s::numeric) OR v::sealed_numeric <> s) AS differ FROM opened_sealed;
SELECT sum(v) = sum(s) AS sum, avg(v) = avg(s) AS avg, min(v) = min(s) AS min, max(v * v) = max(s * s) AS max FROM opened_sealed;
DROP TABLE opened, opened_sealed;
-- each text is read as numeric_in() reads it, or refused as it refuses
CREATE FUNCTION same_text(t text, m int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    plain text;
    sealed text;
BEGIN
    BEGIN plain := numeric_in(textout(t), 0, m); EXCEPTION WHEN OTHERS THEN plain := SQLERRM; END;
    BEGIN sealed := sealed_numeric_in(textout(t), 0, m)::numeric; EXCEPTION WHEN OTHERS THEN sealed := SQLERRM; END;
    RETURN CASE WHEN plain = sealed THEN NULL ELSE format('%s %s: %s, %s', t, m, plain, sealed) END;
END $$;
SELECT d FROM unnest('{"",-,.,-.,+1,1,-0,-0.00,00,007,1.,.5,-.5,1.5.2,1e2,1e-2," 1","1 ",1x,0x1F,1_000,--1,NaN,-Infinity,0.001,0.999,9.99,9.995,99.99,100,999.99,1000,0.1234567890123456,0.123456789012345,1234567890123456,12345678901234567,123456789.12345670,1.50000000000000000000}'::text[]) AS t,
    unnest(ARRAY[-1, (5 << 16 | 2) + 4, (3 << 16 | 3) + 4, (2 << 16 | 3) + 4, (16 << 16 | 15) + 4, (16 << 16 | 0) + 4, (4 << 16 | (-2 & 2047)) + 4]) AS m,
    same_text(t, m) AS d WHERE d IS NOT NULL ORDER BY d COLLATE "C";
DROP FUNCTION same_text;
CREATE FUNCTION same_input(t text, base text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    plain text;
    sealed text;
BEGIN
    BEGIN EXECUTE format('SELECT %L::%s::text', t, base) INTO plain; EXCEPTION WHEN OTHERS THEN plain := SQLERRM; END;
    BEGIN EXECUTE format('SELECT %L::sealed_%s::%s::text', t, base, base) INTO sealed; EXCEPTION WHEN OTHERS THEN sealed := SQLERRM; END;
    RETURN CASE WHEN plain = sealed THEN NULL ELSE format('%s %s: %s, %s', base, t, plain, sealed) END;
END $$;
SELECT count(*) AS texts, count(d) AS differ, min(d) AS first FROM unnest('{"",-,+1,-0,00,007,-5,2147483647,2147483648,-2147483648,-2147483649,999999999999999999,1000000000000000000,-999999999999999999,9223372036854775807,9223372036854775808,-9223372036854775808,-9223372036854775809,0000000000000000001," 5","5 ",5x,0x1F,1_000,--5,2024-02-29,2023-02-29,1900-02-29,2000-02-29,0001-01-01,0099-03-01,0000-01-01,9999-12-31,2024-13-01,2024-00-10,2024-04-30,2024-04-31,2024-01-00,2024-1-1,2024-01-011,2024-01-0,202,2024/01/01,10000-01-01,2024-01-01 BC,infinity,20240101}'::text[]) AS t,
    unnest('{int4,int8,date}'::text[]) AS base, same_input(t, base) AS d;
DROP FUNCTION same_input;
-- equality does not see the scale, the display does
SELECT 1.0::sealed_numeric = 1.000::sealed_numeric AS eq, 1.0::sealed_numeric_wide = 1.000::sealed_numeric_wide AS wide_eq;
SELECT count(*), count(DISTINCT v) FROM unnest('{1.0,1.00,1,2}'::sealed_numeric[]) AS v;
SELECT v, count(*) FROM unnest('{1.0,1.00,2}'::sealed_numeric_wide[]) AS v GROUP BY v ORDER BY v;
-- deterministic and not
SELECT 'a'::sealed_text = 'a'::sealed_text AS det;
SET pgseal.format = sealed;
SELECT 'pgseal:1:00'::sealed_text;
SELECT 5::sealed_int8::text = 5::sealed_int8::text AS same, format('%s', 'x'::text::sealed_text_random) = format('%s', 'x'::text::sealed_text_random) AS random_same, format('%s', 'x'::text::sealed_text) = format('%s', 'x'::text::sealed_text) AS text_same;
SELECT 5::sealed_int8::text ~ '^pgseal:1:[0-9a-f]{16}$' AS form;
SELECT '5'::sealed_int8;
RESET pgseal.format;
SELECT 'pgseal:1:0011223344556677'::sealed_int8;
SELECT 'pgseal:1:zz'::sealed_text;
SELECT 'pgseal:1:zz'::text::sealed_text;
-- any base type of the server
SELECT pgseal.create_type('sealed_inet', 'inet', 'random');
SELECT pgseal.create_type('sealed_time', 'time', 'deterministic');
SELECT pgseal.create_type('sealed_interval', 'interval', 'random');
SELECT pgseal.create_type('sealed_int2', 'int2', 'deterministic');
SELECT '10.0.0.1/8'::sealed_inet, '12:34:56.789'::sealed_time, '1 mon 2 days'::sealed_interval, 7::int2::sealed_int2, host('10.0.0.1'::sealed_inet);
SELECT '12:00'::time::sealed_time = '12:00'::time AS eq, '12:00'::sealed_time < '13:00'::time AS lt;
\set VERBOSITY terse
SELECT pgseal.create_type('bad', 'int2', 'format');
SELECT pgseal.create_type('bad', 'jsonb', 'deterministic');
SELECT pgseal.create_type('bad', 'int4[]', 'random');
SELECT pgseal.create_type('bad', 'text', 'secret');
SELECT pgseal.create_type('Bad', 'text', 'random');
\set VERBOSITY default
-- every operator class is complete
SELECT opcname FROM pg_opclass AS c JOIN pg_type AS t ON t.oid = opcintype WHERE typname LIKE 'sealed%' AND NOT amvalidate(c.oid);
-- NULL
SELECT NULL::sealed_int8, NULL::sealed_text = 'a' AS eq, NULL::int8::sealed_int8;
