-- Both directions, and what is kept out of the plain.
CREATE TABLE t (id int8 PRIMARY KEY, name varchar(20) NOT NULL DEFAULT 'none', price numeric(8,2) CHECK (price > 0), day date, data jsonb);
CREATE TABLE u (t int8 REFERENCES t);
INSERT INTO t SELECT i, 'name ' || i, i, date '2024-01-01' + i, jsonb_build_object('i', i) FROM generate_series(1, 100) AS i; INSERT INTO u SELECT i FROM generate_series(1, 100) AS i;
ALTER TABLE u DROP CONSTRAINT u_t_fkey;
ALTER TABLE t ALTER id TYPE sealed_int8, ALTER name DROP DEFAULT, ALTER name TYPE sealed_text, ALTER name SET DEFAULT 'none'::text, ALTER price TYPE sealed_numeric(8,2), ALTER day TYPE sealed_date, ALTER data TYPE sealed_jsonb_random;
ALTER TABLE u ALTER t TYPE sealed_int8, ADD FOREIGN KEY (t) REFERENCES t;
\d t
INSERT INTO t (id, price) VALUES (1000, -1);
INSERT INTO t (id, price) VALUES (1000, 1) RETURNING *;
SELECT * FROM t WHERE id = 7; SELECT data->>'i' FROM t WHERE id = 9;
ALTER TABLE u DROP CONSTRAINT u_t_fkey;
ALTER TABLE t ALTER id TYPE int8, ALTER name TYPE varchar(20), ALTER price TYPE numeric(8,2), ALTER day TYPE date, ALTER data TYPE jsonb;
ALTER TABLE u ALTER t TYPE int8, ADD FOREIGN KEY (t) REFERENCES t;
SELECT * FROM t WHERE id = 7;
-- no plain value in an index, and none in a generated column
CREATE TABLE g (id sealed_int8, name sealed_text, plain text, copy sealed_text GENERATED ALWAYS AS (plain) STORED);
INSERT INTO g VALUES (1, 'a', 'b'); SELECT * FROM g;
CREATE INDEX ON g ((name::text));
CREATE INDEX ON g (lower(name));
ALTER TABLE g ADD open text GENERATED ALWAYS AS (lower(name)) STORED;
ALTER TABLE g ADD open text GENERATED ALWAYS AS (name || '') STORED;
CREATE INDEX ON g (name) WHERE id = 5;
CREATE STATISTICS g_stat ON id, name FROM g; ANALYZE g;
-- COPY both ways
COPY g (id, name) TO STDOUT;
COPY g (id, name, plain) FROM STDIN;
2	two	zwei
3	\N	drei
\.
SELECT * FROM g ORDER BY id;
-- sequences and identity go through a default
CREATE SEQUENCE s; CREATE TABLE i (id sealed_int8 PRIMARY KEY DEFAULT nextval('s'), v text); INSERT INTO i (v) VALUES ('x'), ('y'); SELECT * FROM i ORDER BY id;
CREATE TABLE i2 (id sealed_int8 GENERATED ALWAYS AS IDENTITY);
-- arrays, composites, domains, temporary tables, cursors
CREATE DOMAIN adult AS sealed_date CHECK (VALUE < date '2008-01-01'); SELECT '2000-01-01'::date::sealed_date::adult; SELECT '2020-01-01'::date::sealed_date::adult;
SELECT ARRAY[1, 2]::int8[]::sealed_int8[]; SELECT ('{1,2}'::sealed_int8[])[2];
CREATE TYPE pair AS (a sealed_int8, b sealed_text); SELECT ROW(1, 'x')::pair; SELECT (ROW(1, 'x')::pair).b;
DROP TYPE pair; DROP DOMAIN adult; DROP TABLE t, u, g, i; DROP SEQUENCE s;
-- two-phase commit, savepoints
CREATE TABLE x (id sealed_int8); BEGIN; INSERT INTO x VALUES (1); SAVEPOINT a; INSERT INTO x VALUES (2); ROLLBACK TO a; PREPARE TRANSACTION 'p'; COMMIT PREPARED 'p'; SELECT * FROM x; DROP TABLE x;
