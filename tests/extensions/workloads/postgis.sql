-- tried: geometry, geography, GiST, SP-GiST and BRIN indexes, clustering, transforms (PROJ), GeoJSON, MVT, raster in and out of the database (GDAL), topology, SFCGAL, tiger geocoder, address standardizer
-- extensions: postgis postgis_raster postgis_topology postgis_sfcgal postgis_tiger_geocoder address_standardizer
CREATE EXTENSION postgis;
CREATE EXTENSION postgis_raster;
CREATE EXTENSION postgis_topology;
CREATE EXTENSION postgis_sfcgal;
CREATE EXTENSION fuzzystrmatch;
CREATE EXTENSION postgis_tiger_geocoder;
CREATE EXTENSION address_standardizer;
CREATE EXTENSION address_standardizer_data_us;
SELECT postgis_version(), postgis_lib_version();
CREATE TABLE places (id int PRIMARY KEY, name text, geom geometry(Point, 4326), geog geography(Point));
INSERT INTO places SELECT g, 'canary-postgis-Zq7x ' || g, p, p::geography FROM generate_series(1, 5000) g,
    LATERAL ST_SetSRID(ST_MakePoint(-180 + (g * 7919 % 36000) / 100.0, -80 + (g * 104729 % 16000) / 100.0), 4326) p;
CREATE INDEX places_gist ON places USING gist (geom);
CREATE INDEX places_geog ON places USING gist (geog);
CREATE INDEX places_spgist ON places USING spgist (geom);
CREATE INDEX places_brin ON places USING brin (geom);
CREATE TABLE areas AS SELECT n AS id, 'canary-postgis-Zq7x area ' || n AS name,
    ST_Buffer(ST_SetSRID(ST_MakePoint(n * 10 - 100, n * 4 - 40), 4326), 8, 64) AS geom FROM generate_series(1, 20) n;
CLUSTER places USING places_gist;
ANALYZE places;
CHECKPOINT;
SELECT a.id, count(p.id) FROM areas a LEFT JOIN places p ON ST_Intersects(a.geom, p.geom) GROUP BY a.id ORDER BY a.id;
SELECT id, round(ST_Distance(geog, 'POINT(8.5 47.4)'::geography)) FROM places ORDER BY geog <-> 'POINT(8.5 47.4)'::geography, id LIMIT 5;
SELECT ST_AsText(ST_Transform(geom, 3857), 2) FROM places WHERE id < 4 ORDER BY id;
SELECT md5(string_agg(ST_AsGeoJSON(geom), ',' ORDER BY id)) FROM places;
SELECT length(ST_AsMVT(q)) > 0 FROM (SELECT id, ST_AsMVTGeom(ST_Transform(geom, 3857), ST_TileEnvelope(2, 1, 1)) AS geom FROM places
    WHERE geom && ST_Transform(ST_TileEnvelope(2, 1, 1), 4326)) q;
SELECT md5(ST_AsBinary(ST_Union(geom, 0.0001))::text) IS NOT NULL, ST_NumGeometries(ST_Collect(geom)) FROM areas;
SELECT ST_Area(ST_Extrude(ST_GeomFromText('POLYGON((0 0,0 1,1 1,1 0,0 0))'), 0, 0, 1)) IS NOT NULL;
-- raster
SET postgis.gdal_enabled_drivers = 'ENABLE_ALL';
SET postgis.enable_outdb_rasters = on;
CREATE TABLE tiles (id serial PRIMARY KEY, name text, rast raster);
INSERT INTO tiles (name, rast) SELECT 'canary-postgis-Zq7x tile ' || n,
    ST_AddBand(ST_MakeEmptyRaster(100, 100, n, n, 0.01, -0.01, 0, 0, 4326), '8BUI'::text, n % 255, 0) FROM generate_series(1, 30) n;
CREATE INDEX tiles_gist ON tiles USING gist (ST_ConvexHull(rast));
SELECT (ST_SummaryStats(rast)).* FROM tiles ORDER BY id LIMIT 3;
SELECT id, ST_Value(rast, 1, 5, 5) FROM tiles ORDER BY id LIMIT 3;
SELECT ST_Width(ST_FromGDALRaster(ST_AsTIFF(rast))), length(ST_AsPNG(rast)) > 0 FROM tiles WHERE id = 1;
SELECT lo_from_bytea(4711, ST_AsTIFF(rast)) FROM tiles WHERE id = 7;
SELECT lo_export(4711, '/srv/extensions/scratch/tile.tif');
INSERT INTO tiles (name, rast) SELECT 'canary-postgis-Zq7x outside', ST_AddBand(ST_MakeEmptyRaster(100, 100, 7, 7, 0.01, -0.01, 0, 0, 4326), 1, '/srv/extensions/scratch/tile.tif', '{1}'::int[]);
SELECT ST_BandPath(rast), ST_Value(rast, 1, 5, 5) FROM tiles WHERE name LIKE '%outside';
SELECT count(*), sum((ST_SummaryStats(ST_MapAlgebra(rast, 1, '8BUI', '[rast] + 1'))).sum) FROM tiles WHERE id <= 10;
SELECT count(*) > 10 FROM ST_GDALDrivers();
-- topology
SELECT topology.CreateTopology('roads', 4326) > 0;
CREATE TABLE roads_of (id int PRIMARY KEY, name text);
SELECT topology.AddTopoGeometryColumn('roads', 'public', 'roads_of', 'topo', 'LINE');
INSERT INTO roads_of SELECT n, 'canary-postgis-Zq7x road ' || n, topology.toTopoGeom(ST_SetSRID(ST_MakeLine(ST_MakePoint(0, n), ST_MakePoint(10, 10 - n)), 4326), 'roads', 1)
    FROM generate_series(1, 6) n;
SELECT topology.TopologySummary('roads');
SELECT * FROM topology.ValidateTopology('roads');
SELECT id, ST_AsText(topo::geometry, 3) FROM roads_of ORDER BY id;
SELECT (standardize_address('us_lex', 'us_gaz', 'us_rules', '1 Main Street, Boston, MA 02110')).*;
SELECT pprint_addy(normalize_address('1 Main Street, Boston, MA 02110'));
DELETE FROM places WHERE id % 3 = 0;
VACUUM places;
INSERT INTO places SELECT g, 'canary-postgis-Zq7x late ' || g, ST_SetSRID(ST_MakePoint(g % 180, g % 80), 4326), ST_SetSRID(ST_MakePoint(g % 180, g % 80), 4326)::geography FROM generate_series(6001, 7000) g;
-- after kill -9
SET enable_seqscan = off;
SELECT count(*) FROM places WHERE geom && ST_MakeEnvelope(0, 0, 50, 50, 4326);
SELECT a.id, count(p.id) FROM areas a JOIN places p ON ST_Contains(a.geom, p.geom) GROUP BY a.id ORDER BY a.id;
SELECT id, round(ST_Distance(geog, 'POINT(8.5 47.4)'::geography)) FROM places ORDER BY geog <-> 'POINT(8.5 47.4)'::geography, id LIMIT 5;
SET postgis.enable_outdb_rasters = on;
SET postgis.gdal_enabled_drivers = 'ENABLE_ALL';
SELECT ST_Value(rast, 1, 5, 5) FROM tiles WHERE name LIKE '%outside';
SELECT * FROM topology.ValidateTopology('roads');
REINDEX TABLE places;
SELECT count(*) FROM places WHERE geog && 'POINT(8.5 47.4)'::geography;
