-- tried: vector, halfvec, sparsevec and bit columns, HNSW and IVFFlat indexes built in parallel and grown, exact and approximate neighbours, vacuum
-- extensions: vector
-- release: trixie 17 postgresql-17-pgvector
CREATE EXTENSION vector;
CREATE TABLE items (id int PRIMARY KEY, name text, v vector(16), h halfvec(16), s sparsevec(16), b bit(32));
CREATE FUNCTION numbers(n int) RETURNS real[] LANGUAGE sql IMMUTABLE AS
    $$ SELECT array_agg((hashint4(n * 31 + d) & 65535) / 65536.0::real ORDER BY d) FROM generate_series(1, 16) d $$;
INSERT INTO items SELECT g, 'canary-pgvector-Zq7x ' || g, numbers(g)::vector, numbers(g)::vector::halfvec, numbers(g)::vector::sparsevec,
    hashint4(g)::bit(32) FROM generate_series(1, 4000) g;
CREATE INDEX items_hnsw ON items USING hnsw (v vector_l2_ops) WITH (m = 16, ef_construction = 128);
CREATE INDEX items_half ON items USING hnsw (h halfvec_cosine_ops);
CREATE INDEX items_bit ON items USING hnsw (b bit_hamming_ops);
CREATE INDEX items_ivf ON items USING ivfflat (v vector_ip_ops) WITH (lists = 20);
CHECKPOINT;
INSERT INTO items SELECT g, 'canary-pgvector-Zq7x later ' || g, numbers(g)::vector, numbers(g)::vector::halfvec, numbers(g)::vector::sparsevec,
    hashint4(g)::bit(32) FROM generate_series(4001, 5000) g;
DELETE FROM items WHERE id % 7 = 0;
VACUUM items;
SET enable_seqscan = off;
SET hnsw.ef_search = 1000;
SET hnsw.iterative_scan = strict_order;
SET ivfflat.probes = 20;
EXPLAIN (COSTS OFF) SELECT id FROM items ORDER BY v <-> numbers(77777)::vector LIMIT 5;
SELECT id, round((v <-> numbers(77777)::vector)::numeric, 4) FROM items ORDER BY v <-> numbers(77777)::vector LIMIT 5;
SELECT id FROM items ORDER BY v <#> numbers(88888)::vector LIMIT 5;
SELECT id FROM items ORDER BY h <=> numbers(99999)::vector::halfvec LIMIT 5;
SELECT avg(v)::text <> '', sum(h)::text <> '' FROM items;
-- after kill -9
SET enable_seqscan = off;
SET hnsw.ef_search = 1000;
SET hnsw.iterative_scan = strict_order;
SET ivfflat.probes = 20;
SELECT id, round((v <-> numbers(77777)::vector)::numeric, 4) FROM items ORDER BY v <-> numbers(77777)::vector LIMIT 5;
SELECT id FROM items ORDER BY v <#> numbers(88888)::vector LIMIT 5;
SELECT id FROM items ORDER BY h <=> numbers(99999)::vector::halfvec LIMIT 5;
SELECT b <~> hashint4(5)::bit(32) AS distance FROM items ORDER BY 1 LIMIT 3;
SELECT count(*) FROM (SELECT id FROM items ORDER BY v <-> numbers(1)::vector LIMIT 3000) x;
INSERT INTO items SELECT g, 'canary-pgvector-Zq7x last ' || g, numbers(g)::vector FROM generate_series(5001, 5200) g;
SELECT id FROM items ORDER BY v <-> numbers(5100)::vector LIMIT 1;
SELECT md5(string_agg(id || v::text || coalesce(s::text, ''), ',' ORDER BY id)) FROM items;
