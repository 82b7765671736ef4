//! The first screen: a page with AES-256-GCM.

use super::algorithm::{Algorithm, Mode};
use super::charts::key;
use super::figures::{At, Compared, Figures};
use super::findings::{library, page_us};
use super::published::Study;
use crate::analysis::{Analysis, Verdict};
use crate::answer::{Answer, Bar, Line, Subject};
use crate::exhibits::{Cell, Tone};
use crate::report::format::{quantity, significant};

/// Microseconds for a page above which the CPU seems to lack AES instructions.
pub const SLOW_PAGE_US: f64 = 5.0;

/// The answer; none if AES-256-GCM was not measured.
pub fn answer(figures: &Figures<'_>, analysis: &Analysis) -> Option<Answer> {
    let arm = if figures.has_arm("aws-lc") { "aws-lc" } else { "openssl" };
    let at = |mode| At::page(mode, 256, arm);
    let (gcm, ctr) = (at(Mode::Gcm), at(Mode::Ctr));
    let (seal, open) = (page_us(figures, gcm)?, page_us(figures, gcm.decrypt())?);
    let compared = figures.difference(gcm, ctr)?;
    let base = page_us(figures, ctr)?;
    let (low, high) = (seal.min(open), seal.max(open));
    let range = match significant(low) == significant(high) {
        true => format!("{} us a page", significant(high)),
        false => format!("{} to {} us a page", significant(low), significant(high)),
    };
    let study = Study::read();
    let theirs = study.page_ranking();
    let theirs = theirs.iter().find(|(mode, _)| *mode == Mode::Ctr);
    let theirs = theirs.map(|(_, rate)| format!("{} (CTR)", quantity(*rate, "bytes/s")));
    let (verdict, tone) = verdict(high, &compared, analysis.is_too_noisy());
    let title = |mode| Algorithm { mode, key_bits: 256 }.title();
    let mut lines = Vec::new();
    for (mode, decrypt) in [
        (Mode::Gcm, false),
        (Mode::Gcm, true),
        (Mode::Xts, false),
        (Mode::ChaCha20Poly1305, false),
        (Mode::GcmSiv, false),
    ] {
        let (one, other) = match decrypt {
            true => (at(mode).decrypt(), ctr.decrypt()),
            false => (at(mode), ctr),
        };
        let (Some(value), Some(base)) = (page_us(figures, one), page_us(figures, other)) else {
            continue;
        };
        let Some(found) = figures.difference(one, other) else { continue };
        let us = |value: f64| format!("{} us", significant(value));
        lines.push(Line {
            what: format!("{} a page, against CTR", if decrypt { "decrypt" } else { "encrypt" }),
            arm: title(mode),
            base: us(base),
            value: us(value),
            cost: cell(&found),
            study: String::new(),
        });
    }
    Some(Answer {
        subject: Subject::Cipher,
        arm: format!("{} ({})", title(Mode::Gcm), library(arm)),
        range,
        bar: Some(Bar {
            base: title(Mode::Ctr),
            arm: title(Mode::Gcm),
            id: key(Mode::Gcm),
            low: low / base,
            high: high / base,
        }),
        study: theirs.unwrap_or_default(),
        verdict: verdict.to_owned(),
        tone,
        lines,
    })
}

/// Always five words.
fn verdict(page_us: f64, found: &Compared, too_noisy: bool) -> (&'static str, Tone) {
    match found.cost.verdict {
        _ if too_noisy => ("Too noisy here to tell", Tone::Faint),
        _ if page_us > SLOW_PAGE_US => ("No AES instructions: very slow", Tone::Bad),
        Verdict::Worse => ("Authentication costs some time here", Tone::Plain),
        Verdict::TooFew => ("Too few rounds to tell", Tone::Faint),
        _ => ("Authentication costs no extra time", Tone::Good),
    }
}

fn cell(found: &Compared) -> Cell {
    let cost = &found.cost;
    let tone = match cost.verdict {
        Verdict::Better => Tone::Good,
        Verdict::Worse => Tone::Plain,
        _ => Tone::Faint,
    };
    let hint = format!("95 % interval {}; noise {:.1} %", cost.interval(), cost.noise_percent());
    Cell::number(cost.times, cost.words()).hint(hint).tone(tone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Cost;
    use crate::plan::Better;
    use crate::stats::Ratio;

    #[test]
    fn the_verdict_has_five_words() {
        for rate in [0.5, 1.0, 2.0] {
            let ratio = Ratio { value: rate, low: rate * 0.99, high: rate * 1.01 };
            let cost = Cost::new(ratio, Better::Higher, 1.02);
            let found = Compared { ratio, differs: cost.differs(), cost };
            for (page_us, noisy) in [(1.0, false), (1.0, true), (80.0, false)] {
                let (words, _) = verdict(page_us, &found, noisy);
                assert_eq!(words.split(' ').count(), 5, "{words}");
            }
        }
    }
}
