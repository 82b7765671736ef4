-- The usual forms of texts are read without the input function of the base type, and their values may come from the memo: they must be those of the texts.
SET client_min_messages = warning;
SELECT pgseal.create_domain('texts_other');
SELECT pgseal.create_type('texts_int4', 'int4', 'format', 'texts_other');
CREATE TABLE texts_plain AS
  SELECT i, (CASE i % 4 WHEN 0 THEN i % 7 WHEN 1 THEN -(i % 1000) WHEN 2 THEN i % 9000 ELSE i * 50000 END)::int4 AS a,
    (CASE i % 3 WHEN 0 THEN i % 11 WHEN 1 THEN 9223372036854775807 - i % 5 ELSE i * 1000000007::int8 END)::int8 AS b,
    (CASE i % 4 WHEN 0 THEN 'NaN'::numeric WHEN 1 THEN -(i % 50) WHEN 2 THEN i / 100.0 ELSE (i % 11) / 10.0 END)::numeric(15,2) AS c,
    CASE i % 1000 WHEN 0 THEN date 'infinity' WHEN 1 THEN date '0044-03-15 BC' ELSE date '1992-01-01' + i % 2500 END AS d,
    timestamptz '2000-01-01 00:00:00+00' + (i % 300) * interval '1 hour' AS t
  FROM generate_series(1, 40000) AS i;
CREATE FUNCTION texts_differences() RETURNS bigint LANGUAGE sql AS
  $$SELECT count(*) FROM texts_plain WHERE (a, b, c, d, t) IS DISTINCT FROM
      (sealed_int4_in(textout(a::text), 0, -1)::int4, sealed_int8_in(textout(b::text), 0, -1)::int8, sealed_numeric_in(textout(c::text), 0, -1)::numeric,
       sealed_date_in(textout(d::text), 0, -1)::date, sealed_timestamptz_in(textout(t::text), 0, -1)::timestamptz)
      OR sealed_int4_in(textout(a::text), 0, -1) <> a::sealed_int4 OR texts_int4_in(textout(a::text), 0, -1) <> a::texts_int4
      OR c::text <> sealed_numeric_in(textout(c::text), 0, -1)::numeric::text$$;
SELECT texts_differences();
SELECT texts_differences();
-- Texts that differ only in zeros, blanks or length are themselves.
SELECT n, count(*), min(v::numeric::text), max(v::numeric::text) FROM
  (SELECT n, sealed_numeric_in(textout(n), 0, -1) AS v FROM unnest(ARRAY['1', '11', '111', '1.0', '1.00', ' 1', '1 ', '1111', '11111111', '111111111', '1111111111111111', '0000000000000001', '00000000000000001']) AS n,
     generate_series(1, 400)) AS x GROUP BY n ORDER BY n COLLATE "C";
-- The precision that a column has counts.
SELECT m, count(*), min(v::numeric::text), max(v::numeric::text) FROM
  (SELECT m, sealed_numeric_in('1.256', 0, m) AS v FROM generate_series(1, 1000), unnest(ARRAY[-1, (5 << 16 | 2) + 4, (5 << 16 | 1) + 4]) AS m) AS x GROUP BY m ORDER BY m;
SELECT sealed_numeric_in('1.256', 0, (2 << 16 | 2) + 4)::numeric;
-- Settings have a say in most dates.
CREATE FUNCTION texts_of_date(d text) RETURNS TABLE (n bigint, low text, high text) LANGUAGE sql AS
  $$SELECT count(*), min(to_char(sealed_date_in(textout(d), 0, -1)::date, 'YYYY Mon DD')), max(to_char(sealed_date_in(textout(d), 0, -1)::date, 'YYYY Mon DD')) FROM generate_series(1, 1000)$$;
SET datestyle = 'ISO, DMY';
SELECT * FROM texts_of_date('02/03/2001'), texts_of_date('2001-03-02') AS iso, texts_of_date('02-03-2001') AS dashes;
SET datestyle = 'ISO, MDY';
SELECT * FROM texts_of_date('02/03/2001'), texts_of_date('2001-03-02') AS iso, texts_of_date('02-03-2001') AS dashes;
SET timezone = 'UTC';
SELECT count(*), max(sealed_timestamptz_in('2001-03-02 04:05', 0, -1)::timestamptz::text) FROM generate_series(1, 1000);
SET timezone = '<+03>-3';
SELECT count(*), max(sealed_timestamptz_in('2001-03-02 04:05', 0, -1)::timestamptz AT TIME ZONE 'UTC') FROM generate_series(1, 1000);
RESET timezone;
RESET datestyle;
-- What is no value is none each time, and what is in the sealed form is refused.
SELECT count(*) FROM generate_series(1, 1000) AS i WHERE sealed_int4_in(textout(CASE WHEN i < 1000 THEN '5' ELSE '5x' END), 0, -1) IS NOT NULL;
SELECT count(*) FROM generate_series(1, 1000) AS i WHERE sealed_int4_in(textout(CASE WHEN i < 1000 THEN '5' ELSE '' END), 0, -1) IS NOT NULL;
SELECT count(*) FROM generate_series(1, 1000) AS i WHERE sealed_int8_in(textout(CASE WHEN i < 1000 THEN '5' ELSE 'pgseal:1:00' END), 0, -1) IS NOT NULL;
-- Values that hardly ever come again, and then few that come often.
SELECT count(*) FROM generate_series(1, 200000) AS i WHERE sealed_int8_in(textout((CASE WHEN i < 60000 THEN i ELSE i % 10 END)::text), 0, -1)::int8 <> CASE WHEN i < 60000 THEN i ELSE i % 10 END;
-- Nothing of the old key is left after a rotation.
CREATE TABLE texts_kept AS SELECT texts_int4_in(textout((i % 10)::text), 0, -1) AS a FROM generate_series(1, 1000) AS i;
CALL pgseal.rotate('texts_other');
SELECT count(*) FROM texts_kept WHERE a = texts_int4_in('7', 0, -1);
SELECT count(*) FROM (SELECT texts_int4_in(textout((i % 10)::text), 0, -1) AS a FROM generate_series(1, 1000) AS i) AS x WHERE a IN (SELECT a FROM texts_kept);
SELECT texts_differences();
DROP TABLE texts_plain, texts_kept;
DROP FUNCTION texts_differences, texts_of_date;
