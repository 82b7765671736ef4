//! A part of the content: `--sample` and `--since`. Headers, places and lengths of all files are
//! checked in any case.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::BuildHasher;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::CliError;
use crate::memory::Memory;

/// The blocks that are chosen or skipped together: 2 MiB of a file.
const PIECE_BLOCKS: u64 = 256;

/// Which content is checked.
#[derive(Debug)]
pub struct Subset {
    /// The part of all pieces, from 0 to 1.
    sample: Option<f64>,
    /// Seconds since 1970: only files changed since.
    since: Option<i64>,
    /// Random in each run, so that nobody knows beforehand which pieces are checked.
    random: RandomState,
}

impl Subset {
    /// From the options of the command line.
    pub fn new(sample: Option<f64>, since: Option<i64>) -> Subset {
        Subset { sample, since, random: RandomState::new() }
    }

    /// In words; `None` if all content is checked.
    pub fn shown(&self) -> Option<String> {
        let sample = self.sample.map(|part| format!("a random sample of {} %", part * 100.0));
        let since = self.since.map(|_| "files changed since the given time".to_owned());
        match (sample, since) {
            (Some(sample), Some(since)) => Some(format!("{sample} of {since}")),
            (one, other) => one.or(other),
        }
    }

    /// Whether the content of a file is looked at.
    pub fn wants_file(&self, path: &Path) -> bool {
        let Some(since) = self.since else { return true };
        // Of a file that cannot be looked at, opening it shows why. A file restored with its old
        // time of modification was changed just now.
        fs::metadata(path).map_or(true, |meta| meta.mtime().max(meta.ctime()) >= since)
    }

    /// Whether a block is looked at.
    pub fn wants_block(&self, path: &Path, block: u64) -> bool {
        let Some(part) = self.sample else { return true };
        let drawn = self.random.hash_one((path, block / PIECE_BLOCKS));
        (drawn as f64) < part * 2.0_f64.powi(64)
    }
}

/// `5%`, `0.5%`.
pub fn parse_sample(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>().ok();
    match number.filter(|_| text.ends_with('%')) {
        Some(percent) if percent > 0.0 && percent <= 100.0 => Ok(percent / 100.0),
        _ => Err("a percentage is wanted, above 0% and at most 100%, as in 5%".to_owned()),
    }
}

/// The seconds since 1970 that `--since` means: `last`, `36h`, `7d`, a day or a time in UTC.
///
/// # Errors
/// When the text is none of these, or no sound check is remembered.
pub fn parse_since(text: &str, root: &Path, memory: &Memory) -> Result<i64, CliError> {
    if text == "last" {
        let own = root.canonicalize().map(|root| root.display().to_string()).unwrap_or_default();
        let last = memory.checks.iter().rfind(|check| check.path == own && check.sound);
        let last = last.and_then(|check| pgseal_keys::seconds_of(&check.when));
        return last.ok_or_else(|| {
            CliError::Usage(
                "verify --since last: no sound check of this directory is remembered; give a time, or \
                 verify all of it"
                    .to_owned(),
            )
        });
    }
    let day = format!("{text}T00:00:00Z");
    let time = pgseal_keys::seconds_of(text).or_else(|| pgseal_keys::seconds_of(&day));
    time.or_else(|| ago(text)).ok_or_else(|| {
        CliError::Usage(format!(
            "verify --since: \"{text}\" is no time; give 36h, 7d, 2026-01-31, 2026-01-31T23:59:59Z or \
             last"
        ))
    })
}

fn ago(text: &str) -> Option<i64> {
    let unit = match text.chars().last()? {
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        'w' => 604_800,
        _ => return None,
    };
    let number = text.get(..text.len() - 1)?.parse::<u32>().ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
    i64::try_from(now).ok()?.checked_sub(i64::from(number) * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_percentages() {
        assert_eq!(parse_sample("5%"), Ok(0.05));
        assert_eq!(parse_sample("100%"), Ok(1.0));
        for bad in ["", "%", "5", "0%", "-1%", "101%", "NaN%", "x%"] {
            assert!(parse_sample(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn about_the_asked_part_is_chosen_and_another_one_each_time() {
        let chosen = |subset: &Subset| -> Vec<u64> {
            let all = (0..20_000).map(|piece| piece * PIECE_BLOCKS);
            all.filter(|block| subset.wants_block(Path::new("base/5/1"), *block)).collect()
        };
        let (one, two) = (Subset::new(Some(0.05), None), Subset::new(Some(0.05), None));
        let (first, second) = (chosen(&one), chosen(&two));
        // 1000 are expected, with a standard deviation of 31.
        assert!((700..1300).contains(&first.len()), "{}", first.len());
        assert_ne!(first, second);
        assert_eq!(chosen(&one), first);
        assert_eq!(chosen(&Subset::new(Some(1.0), None)).len(), 20_000);
        assert!(one.wants_block(Path::new("a"), 7) == one.wants_block(Path::new("a"), 255));
    }

    #[test]
    fn times_are_read() {
        let since = |text: &str| parse_since(text, Path::new("/"), &Memory::default());
        assert_eq!(since("1970-01-02").unwrap(), 86_400);
        assert_eq!(since("1970-01-01T00:01:00Z").unwrap(), 60);
        assert_eq!(since("1h").unwrap() - since("2h").unwrap(), 3600);
        for bad in ["", "yesterday", "h", "1y", "last", "2026-13-01"] {
            assert!(since(bad).is_err(), "{bad}");
        }
    }
}
