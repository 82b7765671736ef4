-- tried: backticks, system, open with a command and with a fork, fork and exec, IPC::Open3, File::Temp, files of one's own in the data directory
-- extensions: plperlu
CREATE EXTENSION plperlu;
CREATE TABLE shared (id int PRIMARY KEY, v text);
INSERT INTO shared SELECT g, 'canary-plperlu-Zq7x ' || g || repeat('x', 50) FROM generate_series(1, 5000) g;
CREATE FUNCTION pl_backticks() RETURNS text LANGUAGE plperlu AS $$ my $x = `echo hello`; chomp $x; return $x $$;
CREATE FUNCTION pl_pipeline() RETURNS text LANGUAGE plperlu AS $$ return join ' ', map { chomp; $_ } `printf 'b\na\n' | sort` $$;
CREATE FUNCTION pl_system() RETURNS int LANGUAGE plperlu AS $$ my $r = system("exit 3"); return $r < 0 ? $r : $r >> 8 $$;
CREATE FUNCTION pl_system_list() RETURNS int LANGUAGE plperlu AS $$ my $r = system("/bin/sh", "-c", "exit 4"); return $r < 0 ? $r : $r >> 8 $$;
CREATE FUNCTION pl_no_such() RETURNS text LANGUAGE plperlu AS $$ no warnings; return system("/no/such/program", "x") == -1 ? 'none' : 'ran' $$;
CREATE FUNCTION pl_open_read() RETURNS text LANGUAGE plperlu AS $$
open my $f, '-|', '/bin/echo', 'hello' or die; my $x = <$f>; close $f; chomp $x; return $x
$$;
CREATE FUNCTION pl_open_write() RETURNS int LANGUAGE plperlu AS $$
open my $f, '|-', '/bin/cat > /dev/null' or die; print $f 'x' x 100000; close $f; return $?
$$;
CREATE FUNCTION pl_open_fork() RETURNS text LANGUAGE plperlu AS $$
use POSIX ();
my $pid = open my $f, '-|'; die unless defined $pid;
if (!$pid) { syswrite STDOUT, "from a child"; POSIX::close($_) for 3 .. 200; POSIX::_exit(0) }
my $x = <$f>; close $f; return $x
$$;
CREATE FUNCTION pl_fork_exec() RETURNS text LANGUAGE plperlu AS $$
use POSIX ();
pipe my $r, my $w or die;
my $pid = fork; die unless defined $pid;
if (!$pid) { POSIX::dup2(fileno $w, 1); POSIX::close($_) for 3 .. 200; exec '/bin/echo', 'hello' or POSIX::_exit(9) }
close $w; my $x = <$r>; waitpid $pid, 0; chomp $x; return "$x " . ($? >> 8)
$$;
CREATE FUNCTION pl_open3() RETURNS text LANGUAGE plperlu AS $$
use IPC::Open3;
my $pid = open3(my $in, my $out, undef, '/bin/cat'); print $in "hello\n"; close $in;
my $x = <$out>; waitpid $pid, 0; chomp $x; return $x
$$;
CREATE FUNCTION pl_dup() RETURNS text LANGUAGE plperlu AS $$
open my $old, '>&', \*STDERR or die; open STDERR, '>', '/dev/null' or die; system 'echo hidden >&2';
open STDERR, '>&', $old or die; close $old; return 'back'
$$;
CREATE FUNCTION pl_temp() RETURNS int LANGUAGE plperlu AS $$
use File::Temp 'tempfile';
my ($f, $name) = tempfile(DIR => '/srv/extensions/scratch', UNLINK => 0); print $f 'x' x 5000; close $f;
my $n = -s $name; unlink $name; return $n
$$;
CREATE FUNCTION pl_socketpair() RETURNS text LANGUAGE plperlu AS $$
use Socket; use POSIX ();
socketpair my $a, my $b, AF_UNIX, SOCK_STREAM, PF_UNSPEC or die;
my $pid = fork; if (!$pid) { syswrite $b, 'hello'; POSIX::_exit(0) }
sysread $a, my $x, 5; waitpid $pid, 0; return $x
$$;
CREATE FUNCTION pl_own_file() RETURNS text LANGUAGE plperlu AS $$
open my $f, '+>>', 'own-file' or die; print $f "canary-plperlu-Zq7x in a file of one's own\n"; seek $f, 0, 0;
my %seen; $seen{$_}++ while <$f>; my $at = tell $f; close $f; return join ' ', scalar keys %seen, $at - -s 'own-file'
$$;
CREATE FUNCTION pl_directory() RETURNS int LANGUAGE plperlu AS $$
opendir my $d, 'base' or die; my $n = () = grep { /^\d+$/ } readdir $d; closedir $d; return $n
$$;
CREATE FUNCTION pl_spi() RETURNS int LANGUAGE plperlu AS $$
my $c = spi_query('select v from shared order by id limit 50'); my $n = 0;
while (my $row = spi_fetchrow($c)) { $n++; system '/bin/true' if $n % 20 == 0 } return $n
$$;
\set ECHO errors
SELECT format($f$\set name t_%s
\set call '%s()'
\i %s$f$, proname, proname, '/srv/extensions/scratch/child.sql')
FROM pg_proc WHERE proname LIKE 'pl\_%' ORDER BY proname COLLATE "C"
\g (format=unaligned tuples_only=on) /srv/extensions/scratch/all.sql
\! sed 's/MARKER/canary-plperlu-Zq7x/' child.inc > /srv/extensions/scratch/child.sql
\set ECHO all
\i /srv/extensions/scratch/all.sql
-- after kill -9
SELECT count(*), md5(string_agg(v, ',' ORDER BY id)) FROM shared;
SELECT pl_own_file();
