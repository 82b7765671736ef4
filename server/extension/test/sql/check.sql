-- What an attacker learns.
CREATE TABLE leak (id sealed_int8, flag sealed_text, skew sealed_text, safe sealed_text_random, later sealed_date);
INSERT INTO leak SELECT i, (ARRAY['yes', 'no'])[1 + i % 2], CASE WHEN i % 3 = 0 THEN 'same' ELSE i::text END, 'yes' FROM generate_series(1, 5000) AS i;
ANALYZE leak;
CREATE TABLE fresh (id sealed_int8);
SELECT relation, column_name, type, severity, finding, distinct_values BETWEEN 4500 AND 5500 AS many, round(top_share::numeric, 2) AS top
FROM pgseal.check() WHERE relation IN ('leak'::regclass, 'fresh'::regclass) ORDER BY relation, column_name, severity, finding;
DROP TABLE leak, fresh;
