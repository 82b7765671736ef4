//! The body of the fuzz target for catalogs as they are on the disk.
//! `crates/pgseal-pgdata/tests/fuzz_smoke.rs` runs it on a stable toolchain.

use pgseal_pgdata::{PlainFiles, relation_of};

/// The length of the relation map in the input; the pages of all catalogs follow.
const MAP_LEN: usize = 524;

struct Input<'a>(&'a [u8]);

impl PlainFiles for Input<'_> {
    fn read(&mut self, rel: &[u8], plain_off: u64, buf: &mut [u8]) -> usize {
        let (map, pages) = self.0.split_at(MAP_LEN.min(self.0.len()));
        let content = if rel.ends_with(b"pg_filenode.map") { map } else { pages };
        let rest = content.get(plain_off as usize..).unwrap_or_default();
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        len
    }
}

/// Looks up relations in any bytes. A name is short and has no control characters.
pub fn catalog(data: &[u8]) {
    for version in [202_209_061, 202_506_291] {
        for file in ["base/5/16384", "base/5/1259", "global/1260"] {
            if let Some(relation) = relation_of(&mut Input(data), file.as_bytes(), version) {
                let shown = relation.to_string();
                assert!(shown.len() <= 3 * 2 * 64 * 3 && !shown.contains(char::is_control));
            }
        }
    }
}

/// Whether the input names a relation.
#[allow(dead_code)]
pub fn has_a_name(data: &[u8]) -> bool {
    relation_of(&mut Input(data), b"base/5/16384", 202_209_061).is_some()
}
