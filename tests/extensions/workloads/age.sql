-- tried: graphs by Cypher: vertices, edges, paths of several steps, properties with indexes, MERGE, SET, DELETE; a graph dropped
-- extensions: age
-- release: trixie 17 postgresql-17-age
-- preload: age
CREATE EXTENSION age;
SET search_path = ag_catalog, "$user", public;
SELECT create_graph('people');
SELECT create_graph('gone');
SELECT * FROM cypher('people', $$ UNWIND range(1, 500) AS i CREATE (:person {n: i, name: 'canary-age-Zq7x ' + toString(i)}) $$) AS (v agtype);
SELECT * FROM cypher('people', $$ MATCH (a:person), (b:person) WHERE b.n = a.n * 2 CREATE (a)-[:knows {since: a.n}]->(b) $$) AS (e agtype);
SELECT * FROM cypher('gone', $$ CREATE (:thing {name: 'canary-age-Zq7x'})-[:has]->(:part) $$) AS (v agtype);
CREATE INDEX ON people.person USING gin (properties);
CREATE INDEX ON people.knows (start_id);
CHECKPOINT;
SELECT * FROM cypher('people', $$ MATCH (a:person {n: 3})-[:knows*1..4]->(b) RETURN b.n ORDER BY b.n $$) AS (n agtype);
SELECT * FROM cypher('people', $$ MATCH p = (a:person {n: 1})-[:knows*]->(b) RETURN max(length(p)) $$) AS (n agtype);
SELECT * FROM cypher('people', $$ MATCH (a:person) WHERE a.n % 10 = 0 SET a.round = true RETURN count(a) $$) AS (n agtype);
SELECT * FROM cypher('people', $$ MERGE (a:person {n: 1001}) RETURN a.n $$) AS (n agtype);
SELECT * FROM cypher('people', $$ MATCH (a:person) WHERE a.n > 480 AND a.n < 491 DETACH DELETE a $$) AS (n agtype);
SELECT drop_graph('gone', true);
-- after kill -9
LOAD 'age';
SET search_path = ag_catalog, "$user", public;
SELECT name FROM ag_graph;
SELECT * FROM cypher('people', $$ MATCH (a:person) RETURN count(a), sum(a.n) $$) AS (n agtype, s agtype);
SELECT * FROM cypher('people', $$ MATCH (a)-[e:knows]->(b) RETURN count(e), sum(e.since) $$) AS (n agtype, s agtype);
SELECT * FROM cypher('people', $$ MATCH (a:person {n: 3})-[:knows*1..4]->(b) RETURN b.name ORDER BY b.n $$) AS (n agtype);
SELECT * FROM cypher('people', $$ MATCH (a:person) WHERE a.round = true RETURN count(a) $$) AS (n agtype);
SELECT * FROM cypher('people', $$ MATCH (a:person {name: 'canary-age-Zq7x 77'}) RETURN a.n $$) AS (n agtype);
