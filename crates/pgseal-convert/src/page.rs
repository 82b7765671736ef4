//! Whether PostgreSQL would accept a page of a relation (`PageIsVerifiedExtended`,
//! `src/backend/storage/page/bufpage.c`; `src/include/storage/bufpage.h`).

/// Bytes of a page.
pub const PAGE_LEN: usize = 8192;
/// Bytes of a page's header.
const HEADER_LEN: usize = 24;
/// The bits of `pd_flags` that mean something, up to PostgreSQL 19 (`PD_VALID_FLAG_BITS`).
const VALID_FLAGS: u16 = 0x0007;
/// Number of sums that are computed in parallel (`N_SUMS`).
const LANES: usize = 32;
const FNV_PRIME: u32 = 16_777_619;

/// The start of each lane (`checksumBaseOffsets`, `src/include/storage/checksum_impl.h`).
const LANE_STARTS: [u32; LANES] = [
    0x5B1F_36E9,
    0xB852_5960,
    0x02AB_50AA,
    0x1DE6_6D2A,
    0x79FF_467A,
    0x9BB9_F8A3,
    0x217E_7CD2,
    0x83E1_3D2C,
    0xF8D4_474F,
    0xE39E_B970,
    0x42C6_AE16,
    0x9932_16FA,
    0x7B09_3B5D,
    0x98DA_FF3C,
    0xF718_902A,
    0x0B1C_9CDB,
    0xE58F_764B,
    0x1876_36BC,
    0x5D7B_3BB1,
    0xE73D_E7DE,
    0x92BE_C979,
    0xCCA6_C0B2,
    0x304A_0979,
    0x85AA_43D4,
    0x7831_25BB,
    0x6CA8_EAA2,
    0xE407_EAC6,
    0x4B5C_FC3E,
    0x9FBF_8C76,
    0x15CA_20BE,
    0xF2CA_9FD3,
    0x959B_D756,
];

/// How the pages of a file are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRule {
    /// Whether the cluster has data checksums.
    pub checksums: bool,
    /// The block number of the file's first page in its relation fork: the number of the segment
    /// times the pages of a segment.
    pub first_block: u32,
}

impl PageRule {
    /// Whether PostgreSQL would accept these bytes as page `index` of the file.
    #[must_use]
    pub fn accepts(&self, index: u64, page: &[u8]) -> bool {
        // An incomplete page at the end of a file: PostgreSQL never reads it.
        let Ok(page) = <&[u8; PAGE_LEN]>::try_from(page) else { return false };
        if u16_at(page, 14) == 0 {
            // pd_upper is 0: a page that was never used, which must be all zeros.
            return page.iter().fold(0, |seen, byte| seen | byte) == 0;
        }
        let (lower, upper, special) = (
            usize::from(u16_at(page, 12)),
            usize::from(u16_at(page, 14)),
            usize::from(u16_at(page, 16)),
        );
        let sane = u16_at(page, 10) & !VALID_FLAGS == 0
            && lower >= HEADER_LEN
            && lower <= upper
            && upper <= special
            && special <= PAGE_LEN
            && special.is_multiple_of(8);
        if !sane {
            return false;
        }
        let Ok(index) = u32::try_from(index) else { return false };
        !self.checksums || checksum(page, self.first_block.wrapping_add(index)) == u16_at(page, 8)
    }
}

/// The checksum that PostgreSQL computes for a page (`pg_checksum_page`).
#[must_use]
pub fn checksum(page: &[u8; PAGE_LEN], block: u32) -> u16 {
    let mut sums = LANE_STARTS;
    let (rows, _) = page.as_chunks::<{ LANES * 4 }>();
    for (number, row) in rows.iter().enumerate() {
        let mut values = [0; LANES];
        let (words, _) = row.as_chunks::<4>();
        for (value, word) in values.iter_mut().zip(words) {
            *value = u32::from_le_bytes(*word);
        }
        if number == 0 {
            // The field pd_checksum counts as 0.
            values[2] &= 0xFFFF_0000;
        }
        mix(&mut sums, &values);
    }
    mix(&mut sums, &[0; LANES]);
    mix(&mut sums, &[0; LANES]);
    let folded = sums.iter().fold(0, |folded, sum| folded ^ sum) ^ block;
    // The result is never 0, which means "no checksum", and it fits into 16 bits.
    u16::try_from(folded % 65_535 + 1).unwrap_or(u16::MAX)
}

fn mix(sums: &mut [u32; LANES], values: &[u32; LANES]) {
    for (sum, value) in sums.iter_mut().zip(values) {
        let mixed = *sum ^ value;
        *sum = mixed.wrapping_mul(FNV_PRIME) ^ (mixed >> 17);
    }
}

fn u16_at(page: &[u8; PAGE_LEN], at: usize) -> u16 {
    u16::from_le_bytes([page[at], page[at + 1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page as PageInit leaves it, with one made-up item.
    fn page(block: u32) -> [u8; PAGE_LEN] {
        let mut page = [0; PAGE_LEN];
        page[12..14].copy_from_slice(&28_u16.to_le_bytes());
        page[14..16].copy_from_slice(&8160_u16.to_le_bytes());
        page[16..18].copy_from_slice(&8192_u16.to_le_bytes());
        page[18..20].copy_from_slice(&0x2004_u16.to_le_bytes());
        page[8160..].fill(7);
        let sum = checksum(&page, block);
        page[8..10].copy_from_slice(&sum.to_le_bytes());
        page
    }

    #[test]
    fn a_page_is_accepted_only_at_its_own_block_number() {
        let rule = PageRule { checksums: true, first_block: 131_072 };
        assert!(rule.accepts(3, &page(131_075)));
        assert!(!rule.accepts(4, &page(131_075)));
        assert!(!rule.accepts(0, &page(0)));
        assert!(PageRule { checksums: false, first_block: 0 }.accepts(9, &page(0)));
    }

    #[test]
    fn any_changed_byte_is_noticed() {
        let rule = PageRule { checksums: true, first_block: 0 };
        for at in (0..PAGE_LEN).step_by(61).chain([8, 9, 10, 14]) {
            let mut page = page(0);
            page[at] ^= 0x10;
            assert!(!rule.accepts(0, &page), "byte {at}");
        }
    }

    #[test]
    fn without_checksums_the_header_is_checked() {
        let rule = PageRule { checksums: false, first_block: 0 };
        assert!(rule.accepts(0, &[0; PAGE_LEN]));
        assert!(!rule.accepts(0, &[0xFF; PAGE_LEN]));
        let mut one_bit = [0; PAGE_LEN];
        one_bit[5000] = 1;
        assert!(!rule.accepts(0, &one_bit));
        let mut odd = page(0);
        odd[12..14].copy_from_slice(&9000_u16.to_le_bytes());
        assert!(!rule.accepts(0, &odd));
        assert!(!rule.accepts(0, &page(0)[..100]));
    }
}
