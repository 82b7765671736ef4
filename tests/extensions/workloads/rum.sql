-- tried: full text with positions and ranks, addon columns by time, arrays, prefix queries, vacuum, generic WAL in recovery
-- extensions: rum
CREATE EXTENSION rum;
CREATE TABLE docs (id int PRIMARY KEY, at timestamp, body text, tsv tsvector, tags int[]);
INSERT INTO docs SELECT g, '2026-01-01'::timestamp + g * interval '1 hour', b, to_tsvector('english', b), ARRAY[g % 7, g % 11, g % 13]
    FROM generate_series(1, 4000) g, LATERAL (SELECT 'canary-rum-Zq7x number ' || g || ' ' ||
        (ARRAY['red apples', 'green pears', 'blue plums', 'ripe grapes'])[1 + g % 4] || ' and ' || (ARRAY['tables', 'chairs', 'doors'])[1 + g % 3] AS b) x;
CREATE INDEX docs_rum ON docs USING rum (tsv rum_tsvector_ops);
CREATE INDEX docs_time ON docs USING rum (tsv rum_tsvector_addon_ops, at) WITH (attach = 'at', to = 'tsv');
CREATE INDEX docs_tags ON docs USING rum (tags rum_anyarray_ops);
SET enable_seqscan = off;
SELECT id FROM docs WHERE tsv @@ to_tsquery('english', 'apple & door') ORDER BY at <=> '2026-02-01'::timestamp, id LIMIT 5;
SELECT count(*) FROM docs WHERE tsv @@ to_tsquery('english', 'red <-> apple');
CHECKPOINT;
DELETE FROM docs WHERE id % 5 = 0;
VACUUM docs;
INSERT INTO docs SELECT g, '2026-06-01', 'canary-rum-Zq7x late pears ' || g, to_tsvector('english', 'late pears ' || g), ARRAY[g % 7] FROM generate_series(5001, 6000) g;
SELECT count(*) FROM docs WHERE tags && ARRAY[3];
-- after kill -9
SET enable_seqscan = off;
SELECT id FROM docs WHERE tsv @@ to_tsquery('english', 'apple & door') ORDER BY at <=> '2026-02-01'::timestamp, id LIMIT 5;
SELECT count(*) FROM docs WHERE tsv @@ to_tsquery('english', 'late & pear');
SELECT count(*) FROM docs WHERE tsv @@ to_tsquery('english', 'gra:*');
SELECT count(*) FROM docs WHERE tags && ARRAY[3];
