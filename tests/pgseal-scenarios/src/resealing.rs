//! New file keys, through the functions of the guard module.

use crate::Node;

/// Makes the functions that the extension has, straight from the guard module that the server has
/// loaded.
pub fn create_functions(node: &Node) {
    let loaded = node.sql("show shared_preload_libraries");
    let guard = loaded.split(',').next().unwrap_or_default().trim().trim_matches('"').to_owned();
    node.sql(&format!(
        "create function reseal(relation regclass, pages_per_second int, begun_only bool)
         returns int language c as '{guard}', 'pgseal_guard_reseal';;
         create function file_keys(relation regclass, out fork text, out segment int,
           out file_key int8, out resealing bool, out pages_done int8, out pages_left int8)
         returns setof record language c strict as '{guard}', 'pgseal_guard_file_keys';;
         create view progress as select c.oid::regclass as relation, k.* from pg_class c,
           lateral file_keys(c.oid) k
           where relkind in ('r', 'i', 'S', 't', 'm') and relpersistence <> 't' and resealing"
    ));
}

/// Starts a worker.
pub fn start(node: &Node, arguments: &str) {
    node.sql(&format!("select reseal({arguments})"));
}

/// Waits until no worker runs.
pub fn wait_for_worker(node: &Node) {
    node.wait_until(
        "select count(*) = 0 from pg_stat_activity where backend_type = 'pgseal reseal'",
    );
}

/// Reseals, and waits until the worker has ended.
pub fn reseal(node: &Node, arguments: &str) {
    start(node, arguments);
    wait_for_worker(node);
}
