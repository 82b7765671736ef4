//! The parsers of escrow copies: no input makes them panic, and what they accept they write back as
//! the same thing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pgseal_keys::Kek;
use pgseal_keys::escrow::{self, EscrowCopy, OpenedBy};

fuzz_target!(|data: &[u8]| {
    if let Ok(copy) = EscrowCopy::from_bytes(data, "fuzz") {
        assert_eq!(copy.to_bytes().expect("it was read").as_slice(), data);
        let text = copy.to_text().expect("what was read can be written");
        let again = escrow::read_all(&text, "fuzz").expect("what was written can be read");
        assert_eq!(again[0].to_bytes().expect("again").as_slice(), data);
    }
    let Ok(text) = core::str::from_utf8(data) else { return };
    let Ok(copies) = escrow::read_all(text, "fuzz") else { return };
    for copy in &copies {
        let again = escrow::read_all(&copy.to_text().expect("it was read"), "fuzz").expect("again");
        assert_eq!(again[0].summary(), copy.summary());
        let kek = Kek::from_text(&[b'7'; 64], "fuzz").expect("64 hexadecimal digits");
        let _ = match copy.opened_by() {
            OpenedBy::Shares { .. } => escrow::open_shares(&copies),
            _ => escrow::open(copy, &kek),
        };
    }
});
