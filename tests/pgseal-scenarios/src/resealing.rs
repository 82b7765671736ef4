//! New file keys, through the functions of the guard module.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use pgseal_cluster::Patience;
use pgseal_core::KeySet;
use pgseal_core::geometry::HEAD_LEN;
use pgseal_core::header::{self, Header, Kind};
use pgseal_core::random::LibraryRandom;
use pgseal_keys::handover;

use crate::Node;

/// The data keys of a cluster.
///
/// # Panics
/// When `pgseal helper keys` does not hand them over.
#[must_use]
pub fn data_keys(node: &Node) -> KeySet {
    let keyring = node.data().join("pgseal/keyring");
    let keyring = keyring.to_str().expect("a path of text");
    let output = node.pgseal_command(&["helper", "keys", "--keyring", keyring]).output();
    let output = output.expect("the helper runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer = handover::decode(&output.stdout).expect("a frame");
    answer.unlocked().expect("an unlocked keyring").keys
}

/// The header of a file.
///
/// # Panics
/// When it has none.
#[must_use]
pub fn header_of(path: &Path) -> Header {
    let head = crate::files::read(path, 0, HEAD_LEN);
    match header::classify(&head) {
        Ok(Kind::Sealed(header)) => header,
        other => panic!("{}: {other:?}", path.display()),
    }
}

/// Adds samples of writes to the header of a file, as a process of the server does that has drawn
/// them: nobody can wait for 2^31 writes. Nobody else writes the header meanwhile.
///
/// # Panics
/// When the header cannot be written.
pub fn add_samples(node: &Node, path: &Path, samples: u32) {
    let (keys, header) = (data_keys(node), header_of(path));
    let head = crate::files::read(path, 0, HEAD_LEN);
    let samples = (header.sealing_number(), samples);
    let counted = header::count(&head, &header, &keys, samples, &LibraryRandom::new());
    let (head, _) = counted.expect("the key opens it").expect("this key seals");
    let file = OpenOptions::new().write(true).open(path).expect("the file is there");
    file.write_all_at(&head, 0).expect("the header can be written");
}

/// The guard module that the server has loaded.
#[must_use]
pub fn guard_of(node: &Node) -> String {
    let loaded = node.sql("show shared_preload_libraries");
    loaded.split(',').next().unwrap_or_default().trim().trim_matches('"').to_owned()
}

/// Makes the functions that the extension has, straight from the guard module that the server has
/// loaded. They name its file; so they have to be made again when the server loads another one.
pub fn create_functions(node: &Node) {
    create_functions_in(node, "postgres");
}

/// As [`create_functions`], in another database.
pub fn create_functions_in(node: &Node, database: &str) {
    let guard = guard_of(node);
    node.sql_in(
        database,
        &format!(
            "create or replace function reseal(relation regclass, pages_per_second int, begun_only bool)
         returns int language c as '{guard}', 'pgseal_guard_reseal';;
         create or replace function file_keys(relation regclass, out fork text, out segment int,
           out file_key int8, out resealing bool, out pages_done int8, out pages_left int8,
           out writes int8)
         returns setof record language c strict as '{guard}', 'pgseal_guard_file_keys';;
         create or replace view progress as select c.oid::regclass as relation, k.* from pg_class c,
           lateral file_keys(c.oid) k
           where relkind in ('r', 'i', 'S', 't', 'm') and relpersistence <> 't' and resealing"
        ),
    );
}

/// Starts a worker, and waits until it is among the server's activities, or has ended.
///
/// # Panics
/// When it is neither.
pub fn start(node: &Node, arguments: &str) {
    let worker = node.sql(&format!("select reseal({arguments})"));
    if worker.is_empty() {
        return;
    }
    let is_there = format!(
        "select exists (select from pg_stat_activity
           where pid = {worker} and backend_type = 'pgseal reseal')"
    );
    let process = Path::new("/proc").join(&worker);
    let patience = Patience::every(Duration::from_millis(20), 60);
    let is_known = || !process.exists() || node.try_sql(&is_there).as_deref() == Ok("t");
    assert!(patience.wait_until(is_known), "worker {worker} is not to be seen");
}

/// Waits until no worker runs, as long as the worker gets on: the relations may be large, and the
/// worker slow by its pace. Needs the functions of [`create_functions`].
///
/// # Panics
/// When the worker has done nothing for a minute.
pub fn wait_for_worker(node: &Node) {
    let ended = "select count(*) = 0 from pg_stat_activity where backend_type = 'pgseal reseal'";
    let done = "select coalesce(string_agg(p::text, ' ' order by p::text), '') from progress p";
    let mut before = String::new();
    loop {
        let patience = Patience::every(Duration::from_millis(100), 60);
        if patience.wait_until(|| node.try_sql(ended).as_deref() == Ok("t")) {
            return;
        }
        let now = node.try_sql(done).unwrap_or_default();
        assert!(now != before, "the worker does not get on: {now:?}\n{}", node.log());
        before = now;
    }
}

/// Reseals, and waits until the worker has ended.
pub fn reseal(node: &Node, arguments: &str) {
    start(node, arguments);
    wait_for_worker(node);
}
