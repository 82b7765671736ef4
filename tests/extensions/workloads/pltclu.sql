-- tried: exec, pipelines, open "|command" both ways, pipes, files, temporary files, glob, files of one's own in the data directory
-- extensions: pltclu
CREATE EXTENSION pltclu;
CREATE TABLE shared (id int PRIMARY KEY, v text);
INSERT INTO shared SELECT g, 'canary-pltclu-Zq7x ' || g || repeat('x', 50) FROM generate_series(1, 5000) g;
CREATE FUNCTION tcl_exec() RETURNS text LANGUAGE pltclu AS $$ return [exec /bin/echo hello] $$;
CREATE FUNCTION tcl_exec_pipeline() RETURNS text LANGUAGE pltclu AS $$ return [exec printf "b\na\n" | sort | tr "\n" " "] $$;
CREATE FUNCTION tcl_exec_input() RETURNS text LANGUAGE pltclu AS $$ return [exec wc -c << [string repeat x 100000]] $$;
CREATE FUNCTION tcl_exec_file() RETURNS text LANGUAGE pltclu AS $$
exec echo hello > /srv/extensions/scratch/tcl; return [exec cat < /srv/extensions/scratch/tcl]
$$;
CREATE FUNCTION tcl_exec_fails() RETURNS text LANGUAGE pltclu AS $$
catch {exec /bin/sh -c "exit 3"} text options; return [lindex [dict get $options -errorcode] 2]
$$;
CREATE FUNCTION tcl_no_such() RETURNS text LANGUAGE pltclu AS $$ return [catch {exec /no/such/program}] $$;
CREATE FUNCTION tcl_exec_background() RETURNS text LANGUAGE pltclu AS $$
set pid [exec /bin/sleep 0.1 &]; return [string is integer [lindex $pid 0]]
$$;
CREATE FUNCTION tcl_open_both() RETURNS text LANGUAGE pltclu AS $$
set f [open "|/bin/cat" r+]; puts $f hello; close $f write; set x [gets $f]; close $f; return $x
$$;
CREATE FUNCTION tcl_open_read() RETURNS text LANGUAGE pltclu AS $$ set f [open "|/bin/echo hello"]; set x [read -nonewline $f]; close $f; return $x $$;
CREATE FUNCTION tcl_pipe() RETURNS text LANGUAGE pltclu AS $$
lassign [chan pipe] r w; exec echo hello >@ $w; close $w; set x [gets $r]; close $r; return $x
$$;
CREATE FUNCTION tcl_copy() RETURNS text LANGUAGE pltclu AS $$
set f [open /srv/extensions/scratch/a w]; puts -nonewline $f [string repeat hello 3000]; close $f
file copy -force /srv/extensions/scratch/a /srv/extensions/scratch/b; return [file size /srv/extensions/scratch/b]
$$;
CREATE FUNCTION tcl_tempfile() RETURNS text LANGUAGE pltclu AS $$
set f [file tempfile name /srv/extensions/scratch/t]; puts -nonewline $f 12345; close $f; set n [file size $name]; file delete $name; return $n
$$;
CREATE FUNCTION tcl_own_file() RETURNS text LANGUAGE pltclu AS $$
set f [open own-file a+]; puts $f "canary-pltclu-Zq7x in a file of one's own"; seek $f 0
set lines [lsort -unique [split [read -nonewline $f] "\n"]]; set at [tell $f]; close $f
return "[llength $lines] [expr {$at - [file size own-file]}]"
$$;
CREATE FUNCTION tcl_glob() RETURNS text LANGUAGE pltclu AS $$ return [llength [glob base/*]] $$;
CREATE FUNCTION tcl_after() RETURNS text LANGUAGE pltclu AS $$
set f [open "|/bin/echo hello"]; fconfigure $f -blocking 0; after 50; set x [read $f]; fconfigure $f -blocking 1; append x [read $f]; close $f; return [string trim $x]
$$;
CREATE FUNCTION tcl_spi() RETURNS int LANGUAGE pltclu AS $$
set n 0; spi_exec "select v from shared order by id limit 50" { incr n; if {$n % 20 == 0} {exec /bin/true} }; return $n
$$;
\set ECHO errors
SELECT format($f$\set name t_%s
\set call '%s()'
\i %s$f$, proname, proname, '/srv/extensions/scratch/child.sql')
FROM pg_proc WHERE proname LIKE 'tcl\_%' ORDER BY proname COLLATE "C"
\g (format=unaligned tuples_only=on) /srv/extensions/scratch/all.sql
\! sed 's/MARKER/canary-pltclu-Zq7x/' child.inc > /srv/extensions/scratch/child.sql
\set ECHO all
\i /srv/extensions/scratch/all.sql
-- after kill -9
SELECT count(*), md5(string_agg(v, ',' ORDER BY id)) FROM shared;
SELECT tcl_own_file();
