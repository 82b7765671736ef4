-- Key domains: another key, other types, no confusion.
SELECT pgseal.create_domain('card');
SELECT pgseal.create_type('card_id', 'int8', 'format', 'card');
SELECT pgseal.create_type('card_number', 'text', 'deterministic', 'card');
SELECT pgseal.create_type('card_note', 'text', 'random', 'card');
CREATE TABLE a (id card_id PRIMARY KEY, number card_number, note card_note);
CREATE TABLE b (id card_id REFERENCES a, other sealed_int8);
INSERT INTO a SELECT i, 'n' || i, 'note' FROM generate_series(1, 5) AS i; INSERT INTO b SELECT i, i FROM generate_series(1, 5) AS i;
SELECT count(*) FROM a JOIN b USING (id);
-- across domains: by value for numbers, an error for others
SELECT count(*) FROM b WHERE id = other;
SELECT count(*) FROM b WHERE id < other + 1;
SELECT count(*) FROM a WHERE number = 'n1'::sealed_text;
SELECT count(*) FROM a WHERE number::text = 'n1'::sealed_text;
\set VERBOSITY terse
CREATE TABLE c (id sealed_int8 REFERENCES a);
\set VERBOSITY default
INSERT INTO b SELECT other, other FROM b;
-- the same value is different ciphertext
SET pgseal.format = sealed;
SELECT (5::int8::card_id)::text = (5::int8::sealed_int8)::text AS same, (1::int8::sealed_int8)::text = ('1970-01-01'::timestamp::sealed_timestamp)::text AS same_type;
RESET pgseal.format;
-- each with its own right
CREATE ROLE regress_card; GRANT SELECT ON a, b TO regress_card; SELECT pgseal.grant_decrypt('card', 'regress_card');
SET ROLE regress_card; SELECT id FROM b LIMIT 0; SELECT id FROM b WHERE id = 3; SELECT other FROM b; RESET ROLE;
DROP TABLE a, b; SELECT pgseal.revoke_decrypt('card', 'regress_card');
REVOKE ALL ON SCHEMA pgseal_decrypt FROM regress_card;
DROP ROLE regress_card;
-- a type of a domain that is not there
SELECT pgseal.create_type('lost', 'text', 'random', 'nowhere');
SELECT 'x'::lost;
