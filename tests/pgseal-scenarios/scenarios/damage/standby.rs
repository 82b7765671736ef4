//! A standby whose copy of a file is damaged continues to follow its primary.

use std::fs;

use pgseal_scenarios::files::{flip_bit, len, zero};
use pgseal_scenarios::{Keys, Node};

#[test]
fn a_standby_replays_what_its_primary_does_with_a_file_that_is_damaged_here() {
    let mut primary = Node::sealed(&[("checkpoint_timeout", "1d")]);
    primary.start();
    for table in ["keep", "t_drop", "t_truncate", "t_cut", "t_update", "t_stays"] {
        primary.sql(&format!(
            "create table {table} (id int, v text);;
             insert into {table} select g, repeat(md5(g::text), 3) from generate_series(1, 1500) g;;
             vacuum {table}"
        ));
    }
    primary.sql("create index i_drop on keep (id);; create index i_reindex on keep (v)");
    let names =
        ["t_drop", "t_truncate", "t_cut", "t_update", "t_stays", "i_drop", "i_reindex", "keep"];
    let files = names.map(|name| primary.relation(name));
    let mut standby = primary.standby(&primary, "standby", Keys::Same);
    standby.start();
    standby.catch_up(&primary);
    standby.stop();
    for (at, file) in files.iter().enumerate() {
        let main = standby.file(file);
        let vm = standby.file(&format!("{file}_vm"));
        match at % 3 {
            _ if file == &files[7] => flip_bit(&vm, 20),
            0 => flip_bit(&main, 20),
            1 => zero(&main, 0, 8192),
            _ => fs::write(&main, vec![0x5A; len(&main) as usize]).expect("it can be written"),
        }
    }
    standby.start();
    // After a checkpoint, the WAL contains an image of every changed page (full_page_writes).
    primary.sql(
        "checkpoint;; drop table t_drop;; truncate t_truncate;; drop index i_drop;;
         reindex index i_reindex;; delete from t_cut where id > 100;; vacuum t_cut;;
         update t_update set v = 'new' where id <= 20;; vacuum keep",
    );
    standby.catch_up(&primary);
    let sum = "select count(*), sum(hashtext(v)) from keep";
    assert_eq!(standby.sql(sum), primary.sql(sum));
    // Reading a damaged page that was not restored is an error; the table does not appear empty.
    for table in ["t_stays", "t_update"] {
        let error = standby.try_sql(&format!("select count(*) from {table}"));
        let error = error.expect_err("its pages are lost");
        assert!(error.contains("invalid page in block"), "{error}");
    }
    assert_eq!(standby.sql("select count(*) from t_truncate"), "0");

    // The same is true after a crash of the standby, and after its promotion.
    standby.kill9();
    standby.start();
    standby.promote();
    standby.sql("insert into keep values (0, 'x');; checkpoint");
    standby.sql("vacuum full keep;; drop table t_update;; truncate t_stays;; vacuum keep");
    assert_eq!(standby.sql("select count(*) from t_stays"), "0");
    assert!(!standby.log().contains("PANIC"), "{}", standby.log());
    standby.stop();
    primary.stop();
    primary.assert_authentic();
}
