-- tried: scripts of sh, bash and perl: arguments, pipelines, temporary files, exit status, a trigger
-- extensions: plsh
CREATE EXTENSION plsh;
CREATE TABLE shared (id int PRIMARY KEY, v text);
INSERT INTO shared SELECT g, 'canary-plsh-Zq7x ' || g || repeat('x', 50) FROM generate_series(1, 5000) g;
CREATE FUNCTION sh_echo() RETURNS text LANGUAGE plsh AS $$#!/bin/sh
echo hello
$$;
CREATE FUNCTION sh_pipeline() RETURNS text LANGUAGE plsh AS $$#!/bin/bash
printf 'b\na\n' | sort | tr '\n' ' '
$$;
CREATE FUNCTION sh_perl() RETURNS text LANGUAGE plsh AS $$#!/usr/bin/perl
print 6 * 7, "\n";
$$;
CREATE FUNCTION sh_arguments(int, text) RETURNS text LANGUAGE plsh AS $$#!/bin/sh
echo "$1 and $2"
$$;
CREATE FUNCTION sh_call() RETURNS text LANGUAGE sql AS $$ SELECT sh_arguments(1, 'two') $$;
CREATE FUNCTION sh_big() RETURNS int LANGUAGE plsh AS $$#!/bin/sh
seq 100000 | wc -c
$$;
CREATE FUNCTION sh_scratch() RETURNS text LANGUAGE plsh AS $$#!/bin/sh
f=$(mktemp /srv/extensions/scratch/x.XXXXXX); echo hello >$f; cat $f; rm $f
$$;
CREATE FUNCTION sh_fails_() RETURNS text LANGUAGE plsh AS $$#!/bin/sh
exit 3
$$;
CREATE FUNCTION sh_fails() RETURNS text LANGUAGE plpgsql AS $$
BEGIN RETURN sh_fails_(); EXCEPTION WHEN others THEN RETURN sqlerrm; END $$;
DO $$ BEGIN ALTER FUNCTION sh_fails_() RENAME TO failing; ALTER FUNCTION sh_arguments(int, text) RENAME TO arguments_; END $$;
CREATE OR REPLACE FUNCTION sh_fails() RETURNS text LANGUAGE plpgsql AS $$
BEGIN RETURN failing(); EXCEPTION WHEN others THEN RETURN sqlerrm; END $$;
CREATE OR REPLACE FUNCTION sh_call() RETURNS text LANGUAGE sql AS $$ SELECT arguments_(1, 'two') $$;
CREATE FUNCTION sh_trigger() RETURNS trigger LANGUAGE plsh AS $$#!/bin/sh
echo "$PLSH_TG_OP $PLSH_TG_TABLE_NAME" >> /srv/extensions/scratch/trigger
$$;
ALTER FUNCTION sh_trigger() RENAME TO triggered;
CREATE TABLE watched (v text);
CREATE TRIGGER t AFTER INSERT ON watched FOR EACH ROW EXECUTE FUNCTION triggered();
INSERT INTO watched VALUES ('canary-plsh-Zq7x 1'), ('canary-plsh-Zq7x 2');
SELECT pg_read_file('/srv/extensions/scratch/trigger');
\set ECHO errors
SELECT format($f$\set name t_%s
\set call '%s()'
\i %s$f$, proname, proname, '/srv/extensions/scratch/child.sql')
FROM pg_proc WHERE proname LIKE 'sh\_%' ORDER BY proname COLLATE "C"
\g (format=unaligned tuples_only=on) /srv/extensions/scratch/all.sql
\! sed 's/MARKER/canary-plsh-Zq7x/' child.inc > /srv/extensions/scratch/child.sql
\set ECHO all
\i /srv/extensions/scratch/all.sql
-- after kill -9
SELECT count(*), md5(string_agg(v, ',' ORDER BY id)) FROM shared;
