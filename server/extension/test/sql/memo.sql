-- A backend that seals or opens many values of a type keeps the last results: they must be those of the cipher.
SET client_min_messages = warning;
SELECT pgseal.create_domain('memo_other');
SELECT pgseal.create_type('memo_int4', 'int4', 'format', 'memo_other');
-- Values at the edges, few values many times, and more values than there are places.
CREATE TABLE memo_plain AS
  SELECT i, (CASE i % 5 WHEN 0 THEN 0 WHEN 1 THEN -1 WHEN 2 THEN 2147483647 WHEN 3 THEN i % 50 ELSE i END)::int4 AS a,
    (CASE i % 4 WHEN 0 THEN 0 WHEN 1 THEN -9223372036854775808 WHEN 2 THEN i ELSE i % 7 END)::int8 AS b,
    (CASE i % 4 WHEN 0 THEN 'NaN'::numeric WHEN 1 THEN 0 WHEN 2 THEN i / 100.0 ELSE (i % 11) / 100.0 END)::numeric(15,2) AS c,
    date '1992-01-01' + i % 2500 AS d,
    repeat('x', i % 27) || CASE WHEN i % 27 = 0 THEN '' ELSE (i % 9)::text END AS e,
    (i % 13)::numeric / 4 AS f
  FROM generate_series(1, 40000) AS i;
CREATE TABLE memo_sealed (i int, a sealed_int4, a2 memo_int4, b sealed_int8, c sealed_numeric(15,2), d sealed_date, e sealed_text, f sealed_numeric_wide);
INSERT INTO memo_sealed SELECT i, a, a, b, c, d, e, f FROM memo_plain;
CREATE FUNCTION memo_differences() RETURNS bigint LANGUAGE sql AS
  $$SELECT count(*) FROM memo_plain p JOIN memo_sealed s USING (i)
    WHERE (p.a, p.b, p.c, p.d, p.e, p.f) IS DISTINCT FROM (s.a::int4, s.b::int8, s.c::numeric, s.d::date, s.e::text, s.f::numeric)
      OR p.a IS DISTINCT FROM s.a2::int4 OR p.c::text IS DISTINCT FROM s.c::numeric::text OR p.f::text IS DISTINCT FROM s.f::numeric::text$$;
SELECT memo_differences();
SELECT memo_differences();
-- A backend that has none yet opens them one by one, and finds each by what it seals itself.
\c
SET client_min_messages = warning;
SELECT s.a::int4, s.b::int8, s.c::numeric, s.d::date, s.e::text, s.f::numeric FROM memo_sealed s WHERE i BETWEEN 39996 AND 40000 ORDER BY i;
SELECT count(*) FROM memo_sealed s, memo_plain p WHERE p.i = 39999 AND s.i = p.i AND s.e = p.e::sealed_text AND s.a = p.a::sealed_int4;
SELECT memo_differences();
-- Constants of VALUES lists are sealed before planning: the same as casts at run time, prepared or not.
CREATE TABLE fold (i int, a sealed_int4, b sealed_int8, c sealed_numeric(6,2), d sealed_date, e sealed_text, f sealed_text_random);
INSERT INTO fold VALUES (1, 5, 6, 7.125, '2020-01-01', 'x', 'y'), (2, -5, NULL, '8.5', date '2020-01-02', 'x'::text, 'y'::text), (3, 2 + 3, 6::int2, 7, NULL, upper('x'), NULL);
INSERT INTO fold VALUES (4, 5, 6, 7.125, '2020-01-01', 'x', 'y');
SELECT i, a::int4, b::int8, c::numeric, d::date, e::text, f::text FROM fold ORDER BY i;
SELECT count(*) FROM fold x JOIN fold y USING (a, b, c, d, e) WHERE x.i = 1 AND y.i = 4;
PREPARE folds (int4) AS INSERT INTO fold (i, a) VALUES (5, 77), (6, $1);
EXECUTE folds (77);
EXECUTE folds (78);
SELECT i, a::int4 FROM fold WHERE i IN (5, 6) ORDER BY i, 2;
INSERT INTO fold (i, c) VALUES (7, 1), (8, 12345.678);
INSERT INTO fold (i, a) VALUES (9, 1), (10, 99999999999::int8);
REVOKE EXECUTE ON FUNCTION sealed_int4_seal(int4) FROM PUBLIC;
CREATE ROLE regress_folder;
GRANT INSERT ON fold TO regress_folder;
SET ROLE regress_folder;
INSERT INTO fold (i, a) VALUES (11, 1), (12, 2);
RESET ROLE;
GRANT EXECUTE ON FUNCTION sealed_int4_seal(int4) TO PUBLIC;
DROP TABLE fold;
DROP ROLE regress_folder;
-- Types of two domains share nothing.
SET pgseal.format = sealed;
SELECT count(*) FROM memo_sealed WHERE a::text = a2::text;
RESET pgseal.format;
-- Nothing of the old key is left after a rotation.
CALL pgseal.rotate('memo_other');
SELECT memo_differences();
INSERT INTO memo_sealed (i, a2) SELECT -i, a FROM memo_plain;
SELECT count(*) FROM memo_sealed s JOIN memo_plain p ON s.i = -p.i WHERE s.a2::int4 IS DISTINCT FROM p.a;
SELECT count(DISTINCT a2) = (SELECT count(DISTINCT a) FROM memo_plain) AS one_for_each FROM memo_sealed;
DROP TABLE memo_plain, memo_sealed;
DROP FUNCTION memo_differences;
