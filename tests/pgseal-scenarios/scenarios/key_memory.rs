//! Keys in the memory of a server's processes are locked, and no core dump contains them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use pgseal_cluster::process;
use pgseal_core::header::{self, Kind};
use pgseal_core::{Suite, geometry};
use pgseal_scenarios::resealing::data_keys;
use pgseal_scenarios::{Node, Session, files, not_applicable};
use rustix::io::Errno;

/// The keys to search for, by their first eight bytes.
struct Wanted {
    keys: HashMap<[u8; 8], Vec<(Vec<u8>, String)>>,
    /// Whether a key begins with these two bytes.
    first: Vec<bool>,
}

impl Wanted {
    fn new() -> Wanted {
        Wanted { keys: HashMap::new(), first: vec![false; 1 << 16] }
    }

    fn add(&mut self, key: &[u8], name: &str) {
        self.first[usize::from(u16::from_le_bytes([key[0], key[1]]))] = true;
        let first = key.first_chunk().copied().unwrap();
        self.keys.entry(first).or_default().push((key.to_vec(), name.to_owned()));
    }

    /// The names of the keys in these bytes.
    fn in_bytes(&self, bytes: &[u8], found: &mut dyn FnMut(&str)) {
        for (at, two) in bytes.windows(2).enumerate() {
            if !self.first[usize::from(u16::from_le_bytes([two[0], two[1]]))] {
                continue;
            }
            let rest = &bytes[at..];
            let keys = rest.first_chunk().and_then(|first: &[u8; 8]| self.keys.get(first));
            for (key, name) in keys.into_iter().flatten() {
                if rest.starts_with(key) {
                    found(name);
                }
            }
        }
    }
}

fn all_files(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { all_files(&path, files) } else { files.push(path) }
    }
}

/// The data keys of the cluster, and the file keys of all its files.
fn wanted(node: &Node) -> Wanted {
    let (keys, mut wanted, mut paths) = (data_keys(node), Wanted::new(), Vec::new());
    for generation in keys.generations() {
        wanted.add(keys.get(generation).unwrap().bytes(), "data key");
    }
    all_files(node.data(), &mut paths);
    for path in paths {
        let mut start = Vec::new();
        // A temporary file may be gone by now.
        let Ok(file) = File::open(&path) else { continue };
        file.take(geometry::HEAD_LEN).read_to_end(&mut start).unwrap();
        // Temporary files are sealed with a key that exists only in the memory of the server.
        if let Ok(Kind::Sealed(header)) = header::classify(&start)
            && let Ok(key) = header::unwrap_key(&start, &header, &keys)
        {
            let (len, name) = (header.suite.key_len(), path.display().to_string());
            // XTS has two keys, and each key has a schedule.
            let xts = matches!(header.suite, Suite::Aes128Xts | Suite::Aes256Xts);
            let part = if xts { len / 2 } else { len };
            key[..len].chunks(part).for_each(|key| wanted.add(key, &name));
        }
    }
    wanted
}

/// A mapping of a process.
struct Mapping {
    name: String,
    from: u64,
    to: u64,
    flags: String,
}

/// The mappings of a process. `None` if the process has ended.
fn mappings(pid: &str) -> Option<Vec<Mapping>> {
    let mut all: Vec<Mapping> = Vec::new();
    let smaps = match fs::read_to_string(format!("/proc/{pid}/smaps")) {
        Ok(smaps) => smaps,
        // ESRCH: the process ended between the `open` and the `read`.
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NOENT | Errno::SRCH)) => {
            return None;
        }
        Err(error) => panic!("/proc/{pid}/smaps: {error}"),
    };
    for line in smaps.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            all.last_mut().unwrap().flags = format!("{flags} ");
            continue;
        }
        let range = line.split_whitespace().next().and_then(|word| word.split_once('-'));
        let number = |text| u64::from_str_radix(text, 16).ok();
        if let Some((Some(from), Some(to))) = range.map(|(from, to)| (number(from), number(to))) {
            all.push(Mapping { name: line.to_owned(), from, to, flags: String::new() });
        }
    }
    Some(all)
}

/// The mappings of a process in which there are keys, with how many of each name.
fn mappings_with_keys(pid: &str, wanted: &Wanted) -> Vec<(Mapping, HashMap<String, u32>)> {
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut with_keys = Vec::new();
    let mappings = mappings(pid).expect("the process runs");
    for mapping in mappings.into_iter().filter(|mapping| mapping.flags.contains(" rd ")) {
        let mut found = HashMap::new();
        let (mut at, mut buf) = (mapping.from, vec![0; 1 << 20]);
        while at < mapping.to {
            let len = usize::try_from(mapping.to - at).unwrap().min(buf.len());
            // The kernel does not allow reading its own mappings, which contain no keys.
            let Ok(got) = memory.read_at(&mut buf[..len], at) else { break };
            wanted
                .in_bytes(&buf[..got], &mut |name| *found.entry(name.to_owned()).or_insert(0) += 1);
            // The reads overlap, so that a key at the end of one read is whole in the next.
            at += if got < len || at + got as u64 == mapping.to { got } else { got - 64 } as u64;
            if got == 0 {
                break;
            }
        }
        if !found.is_empty() {
            with_keys.push((mapping, found));
        }
    }
    with_keys
}

/// Checks that every key in the memory of this process lies in locked memory that no core dump
/// contains. Returns the number of file keys found.
fn check(what: &str, pid: &str, wanted: &Wanted, is_locked: bool) -> Result<usize, String> {
    let (mut files, mut data_keys) = (0, 0);
    for (mapping, found) in mappings_with_keys(pid, wanted) {
        let (name, flags) = (&mapping.name, &mapping.flags);
        if !flags.contains(" dd ") {
            return Err(format!("{what}: in a core dump: {name} {flags} {found:?}"));
        }
        if is_locked && !flags.contains(" lo ") {
            return Err(format!("{what}: not locked: {name} {flags} {found:?}"));
        }
        data_keys += found.get("data key").copied().unwrap_or(0);
        files += found.keys().filter(|name| *name != "data key").count();
    }
    assert!(data_keys > 0, "{what}: no data key was found: the test sees nothing");
    Ok(files)
}

/// Runs a check again if it fails. Rarely, a signal during encryption saves registers with a part
/// of a key on the stack.
fn twice<T>(mut attempt: impl FnMut() -> Result<T, String>) {
    if let Err(first) = attempt()
        && let Err(second) = attempt()
    {
        panic!("{first}\n{second}");
    }
}

/// A server with a table, and the processes that have used it.
struct Busy {
    node: Node,
    session: Session,
    backend: String,
}

fn busy(settings: &[(&str, &str)], prepare: impl FnOnce(&mut Node)) -> Busy {
    let mut node = Node::sealed(settings);
    prepare(&mut node);
    node.start();
    node.sql(
        "create table t (id int primary key, txt text);; \
         insert into t select g, md5(g::text) from generate_series(1, 20000) g;; checkpoint",
    );
    let mut session = node.session();
    session.sql("select count(*) from t");
    session.sql("update t set txt = txt || 'x' where id % 7 = 0");
    session.sql("set work_mem = '64kB'");
    session.sql("select count(*) from (select txt from t order by txt desc offset 10) s");
    let backend = session.sql("select pg_backend_pid()");
    node.sql("checkpoint");
    Busy { node, session, backend }
}

/// The process number of the postmaster.
fn postmaster(busy: &Busy) -> String {
    let pid = process::postmaster(busy.node.data()).expect("the server runs");
    pid.to_string()
}

fn check_all(busy: &mut Busy, is_locked: bool) -> Result<(), String> {
    // Overwrite what was left on the stack.
    busy.session.sql("select sum(length(txt)) from t where id % 3 = 0");
    let wanted = wanted(&busy.node);
    let checkpointer =
        busy.node.sql("select pid from pg_stat_activity where backend_type = 'checkpointer'");
    let postmaster = postmaster(busy);
    let files = check("backend", &busy.backend, &wanted, is_locked)?;
    assert!(files > 2, "the schedules of only {files} files were found in the backend");
    check("checkpointer", &checkpointer, &wanted, is_locked)?;
    check("postmaster", &postmaster, &wanted, is_locked)?;
    // The server continues, and its keys are still in the same memory.
    assert!(busy.session.sql("select count(*) from t").contains("20000"));
    Ok(())
}

/// The line of a check of `pgseal doctor`.
fn doctor_says(busy: &Busy, check: &str) -> String {
    let said = busy.node.pgseal(&["doctor", busy.node.data().to_str().unwrap()]).text;
    let line = said.lines().find(|line| line.split_whitespace().nth(1) == Some(check));
    line.unwrap_or_else(|| panic!("{said}")).to_owned()
}

/// Whether the limit allows a process to lock all its keys.
fn may_lock(pid: &str) -> bool {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory")).unwrap();
    let soft = line.split_whitespace().next().unwrap();
    soft.parse::<u64>().map_or(soft == "unlimited", |bytes| bytes >= 1 << 20)
}

#[test]
fn keys_are_locked_and_in_no_core_dump_in_every_process() {
    let mut busy = busy(&[], |_| {});
    let may_lock = may_lock(&busy.backend);
    twice(|| check_all(&mut busy, may_lock));
    if may_lock {
        let line = doctor_says(&busy, "memory-lock");
        assert!(line.starts_with("ok") && line.contains("of keys locked in each of"), "{line}");
        assert!(!busy.node.log().contains("RLIMIT_MEMLOCK"), "{}", busy.node.log());
    }
}

/// The library takes random bytes from the kernel. The first bytes of AWS-LC's own generator take
/// tens of milliseconds of processor time in each process, and each new connection would pay that
/// at its first commit.
#[test]
fn no_process_starts_the_generator_of_aws_lc() {
    // Only a sync moves the position of the WAL.
    let mut busy = busy(&[("fsync", "on")], |_| {});
    let all = busy.session.sql("select string_agg(pid::text, ' ') from pg_stat_activity");
    let postmaster = postmaster(&busy);
    let pids: Vec<&str> = all.split_whitespace().chain([postmaster.as_str()]).collect();
    assert!(pids.len() > 5 && pids.contains(&busy.backend.as_str()), "{pids:?}");
    let mut looked_at = 0;
    for pid in &pids {
        // A worker of autovacuum may have ended by now.
        let Some(mappings) = mappings(pid) else { continue };
        looked_at += 1;
        for Mapping { name, flags, .. } in mappings {
            // The generator keeps a page that is wiped on fork. The kernel's own, in the vDSO, can
            // be dropped too ("dp").
            let is_generators = flags.contains(" wf ") && !flags.contains(" dp ");
            assert!(!is_generators, "process {pid} started it: {name} {flags}");
        }
    }
    assert!(looked_at > 5, "{looked_at} of {pids:?}");
}

#[test]
fn without_a_limit_that_allows_it_keys_are_in_no_core_dump() {
    let mut busy = busy(&[], |node| node.run_before_start("ulimit -l 0"));
    twice(|| check_all(&mut busy, false));
    assert_eq!(busy.node.log().matches("raise RLIMIT_MEMLOCK").count(), 1, "{}", busy.node.log());
    let line = doctor_says(&busy, "memory-lock");
    assert!(line.starts_with("WARN") && line.contains("not locked, limit 0 kB"), "{line}");
}

#[test]
fn the_core_dump_of_a_backend_has_rows_and_no_key() {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    if pattern.contains(['|', '/', '%']) {
        not_applicable("core dumps", &format!("core_pattern is {}", pattern.trim()));
        return;
    }
    twice(|| check_core_dump(pattern.trim()));
}

/// The core dump of a backend, which is named so.
fn check_core_dump(name: &str) -> Result<(), String> {
    let mut busy = busy(&[], |node| node.run_before_start("ulimit -c unlimited"));
    busy.session.sql("select 'marker of the core dump'");
    let wanted = wanted(&busy.node);
    let killed = Command::new("kill").args(["-ABRT", &busy.backend]).status().unwrap();
    assert!(killed.success());
    let core = || files::names_in(busy.node.data()).into_iter().find(|file| file.starts_with(name));
    let has_dumped = || busy.node.log().contains("was terminated by signal 6");
    files::wait_for("a core dump", || has_dumped() && core().is_some());
    let bytes = fs::read(busy.node.data().join(core().unwrap())).unwrap();
    let marker = b"marker of the core dump";
    assert!(bytes.windows(marker.len()).any(|window| window == marker), "not the backend's memory");
    let mut result = Ok(());
    wanted.in_bytes(&bytes, &mut |name| {
        result = Err(format!("the key of {name} is in the core dump"));
    });
    result
}
