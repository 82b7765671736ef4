//! Procedural languages and extensions: between two rows of one transaction, functions make child
//! processes, threads and files in every way that their libraries offer. Each committed row
//! survives kill -9, and no file shows a row. `make test-extensions` does this for every extension
//! in Debian.
//!
//! The packages are those of the distribution's own server (`scripts/setup.sh test`); another
//! server, unpacked beside it, has none of them.

use pgseal_scenarios::{Node, assert_hidden, assert_shown};

const MARKER: &str = "canary-languages-Zq7x";

const SETTINGS: [(&str, &str); 2] =
    [("work_mem", "64kB"), ("max_parallel_workers_per_gather", "0")];

/// A way to make a child process, a thread or a descriptor: its name, and the body of a function
/// that returns `ok`.
type Way = (&'static str, &'static str);

const PYTHON: [Way; 13] = [
    (
        "run",
        "import subprocess\n\
         return subprocess.run(['/bin/echo', 'ok'], capture_output=True, text=True).stdout.strip()",
    ),
    (
        "shell",
        "import subprocess\n\
         return subprocess.check_output('echo ko | rev || echo ok', shell=True, text=True).strip()[-2:]",
    ),
    ("popen", "import os\nwith os.popen('echo ok') as f: return f.read().strip()"),
    (
        "system",
        "import os\nreturn 'ok' if os.waitstatus_to_exitcode(os.system('exit 3')) == 3 else ''",
    ),
    (
        "no_program",
        "import subprocess\ntry: subprocess.run(['/no/such/program'])\n\
         except FileNotFoundError: return 'ok'",
    ),
    (
        "platform",
        "import platform\nplatform._platform_cache.clear()\n\
         return 'ok' if 'Linux' in platform.platform() and platform.processor() is not None else ''",
    ),
    ("find_library", "import ctypes.util\nreturn 'ok' if ctypes.util.find_library('c') else 'ok'"),
    (
        "spawn",
        "import os\np = os.posix_spawn('/bin/true', ['true'], {}, file_actions=[(os.POSIX_SPAWN_CLOSE, 5)])\n\
         return 'ok' if os.waitpid(p, 0)[1] == 0 else ''",
    ),
    (
        "fork",
        "import os\np = os.fork()\nif p == 0:\n  os.closerange(3, 1024)\n  os._exit(7)\n\
         return 'ok' if os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]) == 7 else ''",
    ),
    (
        "multiprocessing",
        "import multiprocessing as mp\nc = mp.get_context('fork')\na, b = c.Pipe()\n\
         p = c.Process(target=lambda q: q.send('ok'), args=(b,))\np.start()\nx = a.recv()\np.join()\nreturn x",
    ),
    (
        "threads",
        "import subprocess, threading\nfound = []\n\
         def f(): found.append(subprocess.run(['/bin/echo', 'ok'], capture_output=True).stdout)\n\
         ts = [threading.Thread(target=f) for n in range(4)]\n[t.start() for t in ts]\n[t.join() for t in ts]\n\
         return found[3].decode().strip()",
    ),
    (
        "descriptors",
        "import os\nf = os.open('/dev/null', os.O_RDONLY)\nfor n in range(700, 720): os.dup2(f, n)\n\
         os.closerange(690, 1000)\nos.close(f)\nreturn 'ok'",
    ),
    (
        "own_file",
        "with open('own-file', 'a') as f: f.write('MARKER in a file of the function\\n')\n\
         with open('own-file') as f: lines = f.readlines()\n\
         return 'ok' if set(lines) == {'MARKER in a file of the function\\n'} else str(lines)",
    ),
];

const PERL: [Way; 4] = [
    ("backticks", "my $x = `echo ok`; chomp $x; return $x"),
    (
        "open_command",
        "open my $f, '-|', '/bin/echo', 'ok' or die; my $x = <$f>; close $f; chomp $x; return $x",
    ),
    (
        "open_fork",
        "use POSIX (); my $pid = open my $f, '-|'; \
         if (!$pid) { syswrite STDOUT, 'ok'; POSIX::close($_) for 3 .. 200; POSIX::_exit(0) } \
         my $x = <$f>; close $f; return $x",
    ),
    (
        "fork_exec",
        "use POSIX (); pipe my $r, my $w or die; my $pid = fork; \
         if (!$pid) { POSIX::dup2(fileno $w, 1); POSIX::close($_) for 3 .. 200; exec '/bin/echo', 'ok' } \
         close $w; my $x = <$r>; waitpid $pid, 0; chomp $x; return $x",
    ),
];

const TCL: [Way; 3] = [
    ("exec", "return [exec /bin/echo ok]"),
    (
        "open_both",
        "set f [open \"|/bin/cat\" r+]; puts $f ok; close $f write; set x [gets $f]; close $f; return $x",
    ),
    ("pipeline", "return [exec echo ko | tr ko ok | tr -d x << \"\"]"),
];

/// Tries each way twice in a new session, before and after a checkpoint. Rows are written before
/// and after the call, in the same and in another transaction, in a new file and in a file of
/// another session, while a sort has spilled.
fn try_each(node: &Node, language: &str, ways: &[Way]) {
    node.sql(&format!("create extension {language}"));
    for (name, body) in ways {
        let name = format!("{language}_{name}");
        let body = body.replace("MARKER", MARKER);
        let mut session = node.session();
        session.sql(&format!(
            "create function {name}() returns text language {language} as $body$\n{body}\n$body$;
             create table {name} (id int primary key, v text);
             insert into {name} select g, '{MARKER} ' || g from generate_series(1, 100) g"
        ));
        assert_eq!(session.sql(&format!("select {name}()")), "ok", "{name}");
        session.sql(&format!(
            "insert into {name} select g, '{MARKER} ' || g from generate_series(101, 200) g;
             update shared set v = v || '.' where id % 10 = 0;
             begin;
             insert into {name} select g, '{MARKER} ' || g from generate_series(201, 300) g;
             declare spilled cursor for select v from shared order by md5(v)"
        ));
        let first = session.sql("fetch 1 from spilled");
        assert!(first.starts_with(MARKER), "{name}: {first}");
        assert_eq!(session.sql(&format!("select {name}()")), "ok", "{name}");
        session.sql("move 2900 from spilled");
        let rest = session.sql("fetch all from spilled");
        assert_eq!(rest.lines().count(), 99, "{name}: {rest}");
        session.sql(&format!(
            "insert into {name} select g, '{MARKER} ' || g from generate_series(301, 400) g;
             commit;
             checkpoint"
        ));
        assert_eq!(session.sql(&format!("select {name}()")), "ok", "{name}");
        session.sql(&format!(
            "insert into {name} select g, '{MARKER} ' || g from generate_series(401, 500) g"
        ));
    }
}

/// Checks the rows that each way must have left.
fn check_each(node: &Node, language: &str, ways: &[Way]) {
    for (name, _) in ways {
        let sql = format!(
            "select count(*), sum(id), bool_and(v = '{MARKER} ' || id) from {language}_{name}"
        );
        assert_eq!(node.sql(&sql), "500|125250|t", "{language}: {name}");
    }
    let dots = 300 * ways.len();
    let sql = format!(
        "select count(*), sum(length(v) - length(rtrim(v, '.'))) from shared where v like '{MARKER}%'"
    );
    assert_eq!(node.sql(&sql), format!("3000|{dots}"), "{language}");
}

fn node_with_shared_rows() -> Node {
    let mut node = Node::sealed(&SETTINGS);
    node.start();
    node.sql("create extension amcheck");
    node.sql(&format!(
        "create table shared (id int primary key, v text);;
         insert into shared select g, '{MARKER} shared ' || repeat('x', 60) || g \
         from generate_series(1, 3000) g"
    ));
    node
}

fn language(name: &str, test: &str, ways: &[Way]) {
    let mut node = node_with_shared_rows();
    if !node.has_extensions(&[name], test) {
        return;
    }
    try_each(&node, name, ways);
    node.kill9();
    assert_hidden(&[node.data()], MARKER);
    node.start();
    check_each(&node, name, ways);
    node.stop_sound(MARKER);
}

#[test]
fn children_of_python_leave_every_row_sealed_and_committed() {
    language("plpython3u", "languages::python", &PYTHON);
}

#[test]
fn children_of_perl_leave_every_row_sealed_and_committed() {
    language("plperlu", "languages::perl", &PERL);
}

#[test]
fn children_of_tcl_leave_every_row_sealed_and_committed() {
    language("pltclu", "languages::tcl", &TCL);
}

/// Types and partitions of extensions give the same answers sealed and plain, also after kill -9.
#[test]
fn hll_and_pg_partman_answer_as_on_a_plain_server() {
    let mut answers = Vec::new();
    for sealed in [false, true] {
        let mut node = if sealed { Node::sealed(&SETTINGS) } else { Node::plain(&SETTINGS) };
        node.start();
        if !node.has_extensions(&["hll", "pg_partman"], "languages::extensions") {
            return;
        }
        node.sql(&format!(
            "create extension amcheck;; create extension hll;; create schema partman;;
             create extension pg_partman schema partman;;
             create table visits as select g % 20 as day, '{MARKER} ' || g % 3001 as person from generate_series(1, 20000) g;;
             create table daily as select day, hll_add_agg(hll_hash_text(person)) as people from visits group by day;;
             create index on daily (hll_cardinality(people));;
             create table events (id int not null, v text) partition by range (id);;
             select partman.create_parent('public.events', 'id', 'native', '1000', p_premake := 3);;
             insert into events select g, '{MARKER} ' || g from generate_series(1, 3500) g;;
             call partman.run_maintenance_proc();;
             checkpoint;;
             update daily set people = hll_add(people, hll_hash_text('{MARKER} new')) where day < 5;;
             insert into events select g, '{MARKER} ' || g from generate_series(3501, 8500) g;;
             call partman.partition_data_proc('public.events');;
             call partman.run_maintenance_proc()"
        ));
        node.kill9();
        if sealed {
            assert_hidden(&[node.data()], MARKER);
        } else {
            assert_shown(node.data(), MARKER);
        }
        node.start();
        answers.push(node.sql(
            "set enable_seqscan = off;;
             select day, hll_cardinality(people), md5(people::text) from daily order by day;;
             select count(*) from daily where hll_cardinality(people) > 100;;
             select hll_cardinality(hll_union_agg(people)) from daily;;
             select tableoid::regclass, count(*), md5(string_agg(v, ',' order by id)) from events group by 1 order by 1::text collate \"C\";;
             select count(*) from pg_inherits where inhparent = 'events'::regclass",
        ));
        if sealed {
            node.stop_sound(MARKER);
        } else {
            node.stop();
        }
    }
    assert_eq!(answers[0], answers[1]);
    assert!(answers[0].lines().count() > 25, "{}", answers[0]);
}
