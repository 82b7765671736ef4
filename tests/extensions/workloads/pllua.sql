-- tried: io.popen, os.execute, files, tmpfile
-- extensions: plluau
CREATE EXTENSION plluau;
CREATE TABLE shared (id int PRIMARY KEY, v text);
INSERT INTO shared SELECT g, 'canary-pllua-Zq7x ' || g || repeat('x', 50) FROM generate_series(1, 5000) g;
CREATE FUNCTION lua_popen() RETURNS text LANGUAGE plluau AS $$ local f = io.popen("echo hello"); local x = f:read("a"); f:close(); return x $$;
CREATE FUNCTION lua_popen_write() RETURNS text LANGUAGE plluau AS $$ local f = io.popen("cat > /dev/null", "w"); f:write(("x"):rep(100000)); return tostring(f:close()) $$;
CREATE FUNCTION lua_execute() RETURNS text LANGUAGE plluau AS $$ local ok, how, code = os.execute("exit 3"); return how .. code $$;
CREATE FUNCTION lua_tmpfile() RETURNS text LANGUAGE plluau AS $$ local f = io.tmpfile(); f:write("hello"); f:seek("set"); local x = f:read("a"); f:close(); return x $$;
CREATE FUNCTION lua_own_file() RETURNS text LANGUAGE plluau AS $$
local f = io.open("own-file", "a+"); f:write("canary-pllua-Zq7x in a file of one's own\n"); f:seek("set")
local seen, n, all = {}, 0, 0
for line in f:lines() do all = all + 1 if not seen[line] then seen[line] = true n = n + 1 end end
local size = f:seek("end"); f:close(); return n .. " " .. (all * 41 - size)
$$;
\set ECHO errors
SELECT format($f$\set name t_%s
\set call '%s()'
\i %s$f$, proname, proname, '/srv/extensions/scratch/child.sql')
FROM pg_proc WHERE proname LIKE 'lua\_%' ORDER BY proname COLLATE "C"
\g (format=unaligned tuples_only=on) /srv/extensions/scratch/all.sql
\! sed 's/MARKER/canary-pllua-Zq7x/' child.inc > /srv/extensions/scratch/child.sql
\set ECHO all
\i /srv/extensions/scratch/all.sql
-- after kill -9
SELECT count(*), md5(string_agg(v, ',' ORDER BY id)) FROM shared;
SELECT lua_own_file();
