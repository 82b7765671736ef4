\set SHOW_CONTEXT never
-- The extension, and the module in every new session of the database.
CREATE EXTENSION pgseal;
SELECT setconfig FROM pg_db_role_setting AS s JOIN pg_database AS d ON d.oid = setdatabase WHERE datname = current_database()
    AND array_to_string(setconfig, ' ') LIKE '%pgseal%' AND cardinality(setconfig) > 0 \gset
SELECT :'setconfig' LIKE '%session_preload_libraries=pgseal%' AS preloaded;
-- no key yet
SELECT 1::sealed_int8;
SELECT pgseal.create_domain('default');
SELECT pgseal.create_domain('default');
SELECT domain, protection, on_denied, random_version, lookup_version, keys, rotating FROM pgseal.domains;
SELECT * FROM pgseal.types ORDER BY type::text COLLATE "C";
-- nobody but the owner of the extension sees keys
CREATE ROLE regress_nobody;
SET ROLE regress_nobody;
SELECT * FROM _pgseal.key;
SELECT domain FROM pgseal.domains;
RESET ROLE;
DROP ROLE regress_nobody;
