//! Findings about message sizes, key lengths, directions, set-up and libraries.

use super::{SMALL, beside, faster, library, list, sorted};
use crate::exhibits::Finding;
use crate::experiments::modes::algorithm::{Algorithm, Mode};
use crate::experiments::modes::figures::{At, Figures};
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

pub fn unit(figures: &Figures<'_>, study: &Study) -> Vec<Finding> {
    let Some(smallest) = figures.sizes.iter().copied().min() else { return Vec::new() };
    let mut all = Vec::new();
    for (mode, arm) in [(Mode::Gcm, "aws-lc"), (Mode::Gcm, "openssl")] {
        let at = At::page(mode, 256, arm);
        let (title, library) = (at.algorithm.title(), library(arm));
        if let Some(from) = flat_from(&figures.sizes, |bytes| figures.rate(at.bytes(bytes))) {
            all.push(Finding::new(format!(
                "{title} reaches nine tenths of a page's speed from {from} bytes on ({library})."
            )));
        }
        if let Some((small, page)) = figures.rate(at.bytes(smallest)).zip(figures.rate(at)) {
            all.push(Finding::new(format!(
                "{title} on the shortest messages has {:.1} % of a page's speed ({library}).",
                100.0 * small / page
            )));
        }
    }
    let theirs = study.flat_from().map(|(from, share)| {
        format!(
            "AES-128-CTR is within a tenth from {from} bytes up, 16 bytes run at {:.0} % of the speed of \
             8192; so the page is the unit to encrypt.",
            share * 100.0
        )
    });
    beside(all, theirs)
}

pub fn key_length(figures: &Figures<'_>, study: &Study) -> Vec<Finding> {
    let mut all = Vec::new();
    for arm in ["aws-lc", "openssl"] {
        for mode in [Mode::Gcm, Mode::Xts, Mode::Ctr, Mode::Cbc] {
            let at = |bits| At::page(mode, bits, arm);
            let Some(found) = figures.difference(at(256), at(128)) else { continue };
            let title = |bits| Algorithm { mode, key_bits: bits }.title();
            let text = found.cost.against(&title(256), &title(128), &format!("({})", library(arm)));
            all.push(Finding::new(text));
        }
    }
    let theirs = study.key_length().map(|(of_192, of_256)| {
        format!(
            "AES-CTR: 192 bits {:+.0} % of the time, 256 bits {:+.0} %; 128 bits for speed, 256 for \
             security.",
            (1.0 / of_192 - 1.0) * 100.0,
            (1.0 / of_256 - 1.0) * 100.0
        )
    });
    beside(all, theirs)
}

pub fn decrypting(figures: &Figures<'_>, study: &Study) -> Vec<Finding> {
    let mut all = Vec::new();
    for arm in ["aws-lc", "openssl"] {
        let of = |a: Algorithm| {
            let at = At::page(a.mode, a.key_bits, arm);
            figures.difference(at.decrypt(), at)
        };
        let found = sorted(figures, of);
        let differ = found.iter().filter(|(a, found)| {
            let long = a.key_bits == 256 || found.ratio.value > 1.5;
            found.differs && (found.ratio.value - 1.0).abs() > SMALL && long
        });
        let mut modes: Vec<Mode> = Vec::new();
        let before = all.len();
        for (algorithm, found) in differ.rev() {
            // One key length of each mode.
            if modes.contains(&algorithm.mode) {
                continue;
            }
            modes.push(algorithm.mode);
            let (name, rate, library) = (algorithm.title(), found.ratio.value, library(arm));
            all.push(Finding::new(match rate > 1.0 {
                true => {
                    let than = if rate >= 1.5 { "as" } else { "than" };
                    format!("{name} decrypts {} {than} it encrypts ({library}).", faster(rate))
                }
                false => format!(
                    "{name} takes {:.0} % more time to decrypt than to encrypt ({library}).",
                    (1.0 / rate - 1.0) * 100.0
                ),
            }));
        }
        if all.len() == before && !found.is_empty() {
            all.push(Finding::new(format!(
                "No mode decrypts and encrypts at speeds that differ by {:.0} % or more ({}).",
                SMALL * 100.0,
                library(arm)
            )));
        }
    }
    let theirs: Vec<String> = study
        .decrypting()
        .into_iter()
        .filter(|(_, ratio)| (ratio - 1.0).abs() > SMALL)
        .map(|(mode, ratio)| format!("{}, which decrypts {}", mode.title(), faster(ratio)))
        .collect();
    beside(all, Some(format!("Only {} differs.", list(&theirs))))
}

pub fn set_up(figures: &Figures<'_>) -> Vec<Finding> {
    let Some(smallest) = figures.sizes.iter().copied().min() else { return Vec::new() };
    let at = |mode, arm| At::page(mode, 256, arm).bytes(smallest);
    let nanos = |at| Some(smallest as f64 / figures.rate(at)? * 1e9);
    let modes = [Mode::Cbc, Mode::Ctr, Mode::Gcm].into_iter();
    let mut all = Vec::new();
    for mode in modes {
        let (Some(kept), Some(each)) =
            (nanos(at(mode, "openssl")), nanos(at(mode, "openssl-setup")))
        else {
            continue;
        };
        let title = at(mode, "openssl").algorithm.title();
        all.push(Finding::new(format!(
            "Set-up for each call, as in pgcrypto, adds {:.0} ns to a short message with {title} (OpenSSL).",
            each - kept
        )));
        let page = |arm| figures.rate(At::page(mode, 256, arm));
        if let Some((kept, each)) = page("openssl").zip(page("openssl-setup")) {
            all.push(Finding::new(format!(
                "For a page with {title} that set-up weighs {:.0} % (OpenSSL).",
                (kept / each - 1.0).max(0.0) * 100.0
            )));
        }
        if let Some(aws_lc) = nanos(at(mode, "aws-lc")) {
            all.push(Finding::new(format!(
                "AWS-LC with a kept context takes {} ns for a short message with {title}.",
                significant(aws_lc)
            )));
        }
        break;
    }
    all
}

pub fn libraries(figures: &Figures<'_>) -> Vec<Finding> {
    let against = |a: Algorithm| {
        let at = At::page(a.mode, a.key_bits, "aws-lc");
        figures.difference(at, at.arm("openssl"))
    };
    let found = sorted(figures, against);
    let differs = |found: &crate::experiments::modes::figures::Compared| {
        found.differs && (found.ratio.value - 1.0).abs() > SMALL
    };
    let mut all: Vec<Finding> = found
        .iter()
        .rev()
        .filter(|(a, found)| a.key_bits == 256 && differs(found))
        .map(|(a, found)| {
            let ours = format!("AWS-LC's {}", a.title());
            Finding::new(found.cost.against(&ours, "OpenSSL's", "for a page"))
        })
        .collect();
    let same = found.iter().filter(|(_, found)| !differs(found)).count();
    if same > 0 {
        let algorithms = if same == 1 { "algorithm" } else { "algorithms" };
        all.push(Finding::new(format!(
            "AWS-LC and OpenSSL differ by less than a twentieth, or the noise, with {same} {algorithms}."
        )));
    }
    all
}
