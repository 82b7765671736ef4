-- tried: session and object audit, by pgauditlogtofile to a file of its own outside the data directory
-- extensions: pgaudit pgauditlogtofile
-- preload: pgaudit,pgauditlogtofile
-- setting: pgaudit.log = 'all'
-- setting: pgaudit.log_catalog = off
-- setting: pgaudit.log_directory = '/srv/extensions/scratch'
-- setting: pgaudit.log_filename = 'audit.log'
CREATE EXTENSION pgaudit;
CREATE EXTENSION pgauditlogtofile;
CREATE ROLE auditor;
SET pgaudit.role = 'auditor';
CREATE TABLE t (id int, v text);
GRANT SELECT ON t TO auditor;
INSERT INTO t SELECT g, 'canary-pgaudit-Zq7x ' || g FROM generate_series(1, 500) g;
SELECT count(*) FROM t;
DO $$ BEGIN EXECUTE 'CREATE TABLE made_by_do (x int)'; END $$;
PREPARE p AS SELECT v FROM t WHERE id = $1;
EXECUTE p (7);
\! sed -nE 's/.*,(SESSION|OBJECT),[0-9]+,[0-9]+,/\1,N,N,/p' /srv/extensions/scratch/audit.log | head -n 40
-- after kill -9
SELECT count(*) FROM t;
\! grep -cE ',(SESSION|OBJECT),' /srv/extensions/scratch/audit.log
