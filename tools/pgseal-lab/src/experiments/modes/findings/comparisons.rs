//! Findings about message sizes, key lengths, directions, set-up and libraries.

use super::{change, library, list, range};
use crate::exhibits::Finding;
use crate::experiments::modes::algorithm::{Algorithm, Mode};
use crate::experiments::modes::figures::{At, Compared, Figures};
use crate::experiments::modes::plan::PAGE_BYTES;
use crate::experiments::modes::published::Study;
use crate::report::format::significant;

/// The smallest size such that this size and all larger ones reach at least nine tenths of the
/// page's speed.
fn flat_from(sizes: &[usize], rate: impl Fn(usize) -> Option<f64>) -> Option<usize> {
    let page = rate(PAGE_BYTES)?;
    let fast = |size: &usize| rate(*size).is_some_and(|rate| rate >= 0.9 * page);
    let mut sizes = sizes.to_vec();
    sizes.sort_unstable();
    sizes.iter().copied().find(|size| sizes.iter().filter(|s| *s >= size).all(fast))
}

pub fn unit(figures: &Figures<'_>, study: &Study) -> Option<Finding> {
    let mut parts = Vec::new();
    let smallest = figures.sizes.iter().copied().min()?;
    for (mode, arm) in [
        (Mode::Ctr, "openssl-speed"),
        (Mode::Ctr, "openssl"),
        (Mode::Gcm, "openssl"),
        (Mode::Gcm, "aws-lc"),
    ] {
        let at = At::page(mode, 256, arm);
        let Some(from) = flat_from(&figures.sizes, |bytes| figures.rate(at.bytes(bytes))) else {
            continue;
        };
        let Some(small) = figures.rate(at.bytes(smallest)).zip(figures.rate(at)) else { continue };
        let way = match arm {
            "openssl-speed" => "one long message in OpenSSL",
            "openssl" => "separate messages in OpenSSL",
            _ => "separate messages in AWS-LC",
        };
        parts.push(format!(
            "{} from {from} bytes up ({way}; {smallest} bytes at {:.1} % of the page's speed)",
            at.algorithm.title(),
            100.0 * small.0 / small.1
        ));
    }
    if parts.is_empty() {
        return None;
    }
    let text = format!(
        "Which unit: speed is within a tenth of that of a page, or above it, for {}.",
        parts.join("; ")
    );
    let theirs = study.flat_from().map(|(from, share)| {
        format!(
            "AES-128-CTR is within a tenth from {from} bytes up, 16 bytes run at {:.0} % of the speed of \
             8192; so the page is the unit to encrypt.",
            share * 100.0
        )
    });
    Some(Finding { text, study: theirs })
}

pub fn key_length(figures: &Figures<'_>, study: &Study) -> Option<Finding> {
    let mut parts = Vec::new();
    for arm in ["openssl", "aws-lc"] {
        for mode in [Mode::Ctr, Mode::Cbc, Mode::Gcm, Mode::Xts] {
            let short = At::page(mode, 128, arm);
            let against = |bits| {
                let found = figures.difference(At::page(mode, bits, arm), short)?;
                let words = match found.differs {
                    true => format!("{:+.0} %", (found.ratio.value - 1.0) * 100.0),
                    false => "no difference".to_owned(),
                };
                Some(format!("{bits} bits {words}"))
            };
            let both: Vec<String> = [192, 256].into_iter().filter_map(against).collect();
            if !both.is_empty() {
                parts.push(format!("{} in {}: {}", mode.title(), library(arm), both.join(", ")));
            }
        }
    }
    if parts.is_empty() {
        return None;
    }
    let text = format!(
        "What key length costs, against 128 bits, encrypting a page: {}.",
        parts.join("; ")
    );
    let theirs = study.key_length().map(|(of_192, of_256)| {
        format!(
            "AES-CTR: 192 bits {:+.0} %, 256 bits {:+.0} %; 128 bits for speed, 256 for security.",
            (of_192 - 1.0) * 100.0,
            (of_256 - 1.0) * 100.0
        )
    });
    Some(Finding { text, study: theirs })
}

pub fn decrypting(figures: &Figures<'_>, study: &Study) -> Option<Finding> {
    let mut parts = Vec::new();
    let mut measured = false;
    for arm in ["openssl", "aws-lc"] {
        let mut differ = Vec::new();
        for a in figures.algorithms() {
            let at = At::page(a.mode, a.key_bits, arm);
            let Some(found) = figures.difference(at.decrypt(), at) else { continue };
            measured = true;
            if found.differs && (found.ratio.value - 1.0).abs() > 0.05 {
                differ.push(format!("{} {}", a.title(), change(found.ratio.value)));
            }
        }
        let words = if differ.is_empty() { "no mode".to_owned() } else { list(&differ) };
        parts.push(format!("in {}: {words}", library(arm)));
    }
    if !measured {
        return None;
    }
    let text = format!(
        "Decrypting against encrypting a page, where it differs by more than 5 % and the noise: {}.",
        parts.join("; ")
    );
    let theirs: Vec<String> = study
        .decrypting()
        .into_iter()
        .filter(|(_, ratio)| (ratio - 1.0).abs() > 0.05)
        .map(|(mode, ratio)| format!("{} {}", mode.title(), change(ratio)))
        .collect();
    Some(Finding::with_study(text, format!("only {} differs.", list(&theirs))))
}

pub fn set_up(figures: &Figures<'_>) -> Option<Finding> {
    let smallest = figures.sizes.iter().copied().min()?;
    let at = |mode, arm| At::page(mode, 256, arm).bytes(smallest);
    let nanos = |at| Some(smallest as f64 / figures.rate(at)? * 1e9);
    let mode = [Mode::Cbc, Mode::Ctr, Mode::Gcm]
        .into_iter()
        .find(|mode| figures.rate(at(*mode, "openssl-setup")).is_some())?;
    let (kept, each) = (nanos(at(mode, "openssl"))?, nanos(at(mode, "openssl-setup"))?);
    let mut text = format!(
        "Set-up for each call, as pgcrypto does it, makes {smallest} bytes of {} in OpenSSL take {} ns \
         instead of {} ns with a kept context: {} times",
        at(mode, "openssl").algorithm.title(),
        significant(each),
        significant(kept),
        significant(each / kept)
    );
    let aws_lc = nanos(at(mode, "aws-lc"));
    if let Some(aws_lc) = aws_lc {
        text.push_str(&format!("; AWS-LC with a kept context takes {} ns", significant(aws_lc)));
    }
    let page = |arm| figures.rate(At::page(mode, 256, arm));
    if let Some((kept, each)) = page("openssl").zip(page("openssl-setup")) {
        text.push_str(&format!(
            ". For a page the set-up weighs {:.0} %",
            (kept / each - 1.0).max(0.0) * 100.0
        ));
    }
    text.push('.');
    Some(Finding::new(text))
}

pub fn libraries(figures: &Figures<'_>) -> Option<Finding> {
    let against = |a: Algorithm| {
        let at = At::page(a.mode, a.key_bits, "aws-lc");
        figures.difference(at, at.arm("openssl"))
    };
    let (found, _) = range(figures, against)?;
    let pick = |faster: bool| -> Vec<String> {
        let of = |(_, c): &&(Algorithm, Compared)| {
            c.differs && (c.ratio.value > 1.0) == faster && (c.ratio.value - 1.0).abs() > 0.05
        };
        let words =
            |(a, c): &(Algorithm, Compared)| format!("{} {}", a.title(), change(c.ratio.value));
        found.iter().filter(of).map(words).collect()
    };
    let (faster, slower) = (pick(true), pick(false));
    let same = found.len() - faster.len() - slower.len();
    let of = |words: Vec<String>, verb: &str| {
        if words.is_empty() { String::new() } else { format!(" {verb}: {};", list(&words)) }
    };
    let text = format!(
        "AWS-LC against OpenSSL, encrypting a page:{}{} {same} of {} within 5 % or the noise.",
        of(faster, "faster"),
        of(slower, "slower"),
        found.len()
    );
    Some(Finding::new(text))
}
