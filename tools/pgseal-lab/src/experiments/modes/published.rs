//! The published figures of studies 1 and 2, in the terms of this experiment. They are never mixed
//! with measured figures.

use super::algorithm::{Direction, Mode};
use super::plan::PAGE_BYTES;
use crate::published::{
    AesMode, OpensslSpeed, PublicKeySpeed, aes_modes, openssl_speed, public_key_speed,
};

/// Both studies' figures.
pub struct Study {
    modes: Vec<AesMode>,
    /// Study 2, symmetric algorithms.
    pub speed: Vec<OpensslSpeed>,
    /// Study 2, signatures.
    pub keys: Vec<PublicKeySpeed>,
}

/// A key of study 2.
pub fn key(algorithm: &'static str, bits: u32) -> (&'static str, u32) {
    (algorithm, bits)
}

/// The modes of study 1.
pub const MODES: [Mode; 5] = [Mode::Ecb, Mode::Cbc, Mode::Cfb, Mode::Ofb, Mode::Ctr];

impl Study {
    /// Reads the figures of both studies.
    pub fn read() -> Study {
        Study { modes: aes_modes(), speed: openssl_speed(), keys: public_key_speed() }
    }

    /// Study 1's speed in bytes per second.
    pub fn rate(
        &self,
        mode: Mode,
        key_bits: u16,
        direction: Direction,
        aes: bool,
        bytes: usize,
    ) -> Option<f64> {
        let row = self.modes.iter().find(|row| {
            row.mode == mode.id()
                && row.key_bits == u32::from(key_bits)
                && row.direction == direction.id()
                && row.aes_instructions == aes
                && row.block_bytes as usize == bytes
        })?;
        Some(row.kilobytes_per_second * 1000.0)
    }

    fn page(&self, mode: Mode, aes: bool) -> Option<f64> {
        self.rate(mode, 128, Direction::Encrypt, aes, PAGE_BYTES)
    }

    /// Modes by speed of a page, fastest first.
    pub fn page_ranking(&self) -> Vec<(Mode, f64)> {
        let mut ranked: Vec<(Mode, f64)> =
            MODES.into_iter().filter_map(|mode| Some((mode, self.page(mode, true)?))).collect();
        ranked.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        ranked
    }

    /// The speed with AES instructions over the speed without: the mode with the smallest and the
    /// mode with the largest ratio.
    pub fn aes_worth(&self) -> Option<((Mode, f64), (Mode, f64))> {
        let mut worth: Vec<(Mode, f64)> = MODES
            .into_iter()
            .filter_map(|mode| Some((mode, self.page(mode, true)? / self.page(mode, false)?)))
            .collect();
        worth.sort_by(|(_, one), (_, other)| one.total_cmp(other));
        worth.first().copied().zip(worth.last().copied())
    }

    /// For CTR: the smallest size whose speed is at least nine tenths of a page's, and the speed of
    /// 16 bytes as a share of a page's.
    pub fn flat_from(&self) -> Option<(usize, f64)> {
        let rate = |bytes| self.rate(Mode::Ctr, 128, Direction::Encrypt, true, bytes);
        let page = rate(PAGE_BYTES)?;
        let sizes = [16, 64, 256, 1024, 8192];
        let from = sizes.into_iter().find(|bytes| rate(*bytes).is_some_and(|r| r >= 0.9 * page))?;
        Some((from, rate(16)? / page))
    }

    /// The speed of CTR with keys of 192 and of 256 bits, each over the speed with 128 bits.
    pub fn key_length(&self) -> Option<(f64, f64)> {
        let rate = |bits| self.rate(Mode::Ctr, bits, Direction::Encrypt, true, PAGE_BYTES);
        let short = rate(128)?;
        Some((rate(192)? / short, rate(256)? / short))
    }

    /// For each mode, the speed of decrypting a page over the speed of encrypting it.
    pub fn decrypting(&self) -> Vec<(Mode, f64)> {
        let back = |mode| self.rate(mode, 128, Direction::Decrypt, true, PAGE_BYTES);
        MODES
            .into_iter()
            .filter_map(|mode| Some((mode, back(mode)? / self.page(mode, true)?)))
            .collect()
    }

    /// Signatures per second with a key of study 2.
    pub fn sign(&self, (algorithm, bits): (&str, u32)) -> Option<f64> {
        let row = self.keys.iter().find(|row| row.algorithm == algorithm && row.bits == bits)?;
        Some(row.sign_per_second)
    }
}

/// Study 2's row at a size, in bytes per second.
pub fn speed_at(row: &OpensslSpeed, bytes: usize) -> Option<f64> {
    let kilobytes = match bytes {
        16 => row.of_16,
        64 => row.of_64,
        256 => row.of_256,
        1024 => row.of_1024,
        8192 => row.of_8192,
        _ => return None,
    };
    Some(kilobytes * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_study_s_own_findings_follow_from_its_figures() {
        let study = Study::read();
        assert_eq!(study.page_ranking().first().map(|(mode, _)| *mode), Some(Mode::Ecb));
        let (least, most) = study.aes_worth().unwrap();
        assert!(least.1 > 2.5 && most.1 > 10.0, "{least:?} {most:?}");
        assert_eq!(study.flat_from().map(|(from, _)| from), Some(1024));
        let (of_192, of_256) = study.key_length().unwrap();
        assert!(of_256 < of_192 && of_192 < 1.0);
        let differ: Vec<Mode> = study
            .decrypting()
            .into_iter()
            .filter(|(_, ratio)| (ratio - 1.0).abs() > 0.05)
            .map(|(mode, _)| mode)
            .collect();
        assert_eq!(differ, [Mode::Cbc]);
    }
}
