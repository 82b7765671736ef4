-- Byte for byte what pgcrypto does, and the way over.
CREATE EXTENSION pgcrypto;
SELECT count(*) AS same FROM generate_series(0, 70) AS len, unnest('{5,16,20,24,31,32}'::int[]) AS key_len, unnest('{aes,aes-cbc,aes-cbc/pad:pkcs,aes-ecb}'::text[]) AS c,
    LATERAL (SELECT decode(substr(repeat(md5(len::text), 5), 1, 2 * len), 'hex') AS data, decode(substr(repeat(md5(c), 2), 1, 2 * key_len), 'hex') AS key) AS x
WHERE pgseal.encrypt(data, key, c) = encrypt(data, key, c) AND pgseal.decrypt(encrypt(data, key, c), key, c) = data
  AND pgseal.encrypt_iv(data, key, '\x0102', c) = encrypt_iv(data, key, '\x0102', c) AND pgseal.decrypt_iv(encrypt_iv(data, key, '\x0102', c), key, '\x0102', c) = data;
SELECT 71 * 6 * 4 AS wanted;
SELECT pgseal.encrypt('0123456789abcdef', 'key', 'aes/pad:none') = encrypt('0123456789abcdef', 'key', 'aes/pad:none') AS nopad;
SELECT pgseal.encrypt('x', 'key', 'bf');
SELECT pgseal.encrypt('x', 'key', 'aes/pad:none');
SELECT pgseal.decrypt('\x00112233', 'key', 'aes');
-- one ALTER TABLE; the old key comes with the connection
CREATE TABLE old (id int, raw bytea, hex text, pgp bytea, pgp_bytes bytea);
INSERT INTO old SELECT i, encrypt(('raw ' || i)::bytea, 'oldkey', 'aes'), encrypt(('hex ' || i)::bytea, 'oldkey', 'aes')::text,
    pgp_sym_encrypt('pgp ' || i, 'oldkey'), pgp_sym_encrypt_bytea('\xff00', 'oldkey') FROM generate_series(1, 3) AS i;
ALTER TABLE old ALTER raw TYPE sealed_text USING convert_from(pgseal.from_pgcrypto(raw), 'UTF8');
\c "dbname=contrib_regression options='-c pgseal.pgcrypto_key=oldkey'"
SHOW pgseal.pgcrypto_key;
ALTER TABLE old ALTER raw TYPE sealed_text USING convert_from(pgseal.from_pgcrypto(raw), 'UTF8'),
    ALTER hex TYPE sealed_text USING convert_from(pgseal.from_pgcrypto(hex::bytea), 'UTF8'),
    ALTER pgp TYPE sealed_text_random USING pgseal.from_pgp(pgp),
    ALTER pgp_bytes TYPE sealed_bytea_random USING pgseal.from_pgp_bytea(pgp_bytes);
SELECT * FROM old ORDER BY id;
SELECT id FROM old WHERE raw = 'raw 2';
\c "dbname=contrib_regression options=''"
DROP TABLE old; DROP EXTENSION pgcrypto;
