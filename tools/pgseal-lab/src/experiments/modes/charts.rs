//! Charts like those of study 1, with the study's figures as separate lines.

use super::algorithm::{Algorithm, Direction, Mode};
use super::figures::{At, Figures};
use super::plan::{PAGE_BYTES, figure};
use super::published::{MODES, Study};
use crate::exhibits::{Axis, Chart, ChartKind, Origin, Point, Series};
use crate::stats::Ratio;

/// All charts that the data allow.
pub fn charts(figures: &Figures<'_>) -> Vec<Chart> {
    let study = Study::read();
    let mut charts = Vec::new();
    for (id, title, arm, aes) in [
        (
            "modes-aes",
            "Modes by size, 128-bit keys, with AES instructions (as openssl speed)",
            "openssl-speed",
            true,
        ),
        (
            "modes-noaes",
            "Modes by size, 128-bit keys, without AES instructions",
            "openssl-speed-noaes",
            false,
        ),
    ] {
        charts.extend(modes_by_size(figures, &study, id, title, arm, aes));
    }
    charts.extend(aes_worth(figures, &study));
    charts.extend(key_length(figures, &study));
    charts.extend(directions(figures));
    charts.extend(all_by_size(
        figures,
        "aws-lc",
        "sizes-aws-lc-chart",
        "AWS-LC by size, 256-bit keys",
    ));
    charts.extend(message_time(figures));
    charts
}

fn bytes_axis() -> Axis {
    Axis { title: "size of the message".to_owned(), unit: "bytes".to_owned(), log: true }
}

/// What a mode is in charts.
pub fn key(mode: Mode) -> String {
    format!("mode {}", mode.title())
}

fn speed_axis() -> Axis {
    Axis { title: "speed of one core".to_owned(), unit: "bytes/s".to_owned(), log: false }
}

fn label_axis(title: &str) -> Axis {
    Axis { title: title.to_owned(), ..Axis::default() }
}

/// The line of a mode; a mode has one colour in all charts.
fn line(figures: &Figures<'_>, at: At<'_>) -> Option<Series> {
    let point = |bytes: &usize| Some(Point::at(*bytes as f64, figures.rate(at.bytes(*bytes))?));
    let points: Vec<Point> = figures.sizes.iter().filter_map(point).collect();
    let (name, arm) = (at.algorithm.mode.title().to_owned(), key(at.algorithm.mode));
    (!points.is_empty()).then_some(Series { name, arm, points, ..Series::default() })
}

fn lines(id: &str, title: &str, y: Axis, series: Vec<Series>, note: Option<&str>) -> Option<Chart> {
    let measured = series.iter().any(|series| series.origin == Origin::Measured);
    measured.then(|| Chart {
        id: id.to_owned(),
        title: title.to_owned(),
        kind: ChartKind::Lines,
        x: bytes_axis(),
        y,
        series,
        note: note.map(str::to_owned),
    })
}

fn modes_by_size(
    figures: &Figures<'_>,
    study: &Study,
    id: &str,
    title: &str,
    arm: &str,
    aes: bool,
) -> Option<Chart> {
    let mut series = Vec::new();
    for mode in MODES {
        series.extend(line(figures, At::page(mode, 128, arm)));
    }
    for mode in MODES {
        let rate = |bytes: usize| study.rate(mode, 128, Direction::Encrypt, aes, bytes);
        let point = |bytes: &usize| Some(Point::at(*bytes as f64, rate(*bytes)?));
        let points: Vec<Point> = figures.sizes.iter().filter_map(point).collect();
        let name = format!("{} (study)", mode.title());
        series.push(Series { name, arm: key(mode), origin: Origin::Study, points });
    }
    let note = "The study: Intel i5-8400, OpenSSL 1.0.2k.";
    lines(id, title, speed_axis(), series, Some(note))
}

fn all_by_size(figures: &Figures<'_>, arm: &str, id: &str, title: &str) -> Option<Chart> {
    let series =
        Mode::ALL.into_iter().filter_map(|mode| line(figures, At::page(mode, 256, arm))).collect();
    lines(id, title, speed_axis(), series, None)
}

/// Time of one message against its size, which shows the share of the set-up.
fn message_time(figures: &Figures<'_>) -> Option<Chart> {
    let ways = [
        ("OpenSSL, context kept", "openssl"),
        ("OpenSSL, set up per call", "openssl-setup"),
        ("AWS-LC", "aws-lc"),
    ];
    let mut series = Vec::new();
    for (name, arm) in ways {
        for mode in [Mode::Cbc, Mode::Gcm] {
            let at = At::page(mode, 256, arm);
            let point = |bytes: &usize| {
                Some(Point::at(*bytes as f64, *bytes as f64 / figures.rate(at.bytes(*bytes))?))
            };
            let points: Vec<Point> = figures.sizes.iter().filter_map(point).collect();
            if !points.is_empty() {
                let name = format!("{}, {name}", at.algorithm.title());
                series.push(Series { name, points, ..Series::default() });
            }
        }
    }
    let y = Axis { title: "time of one message".to_owned(), unit: "s".to_owned(), log: true };
    lines("message-time", "Time of one message, 256-bit keys", y, series, None)
}

fn bar(label: String, ratio: Ratio) -> Point {
    let point = Point::label(label, ratio.value);
    let known = ratio.low.is_finite() && ratio.high.is_finite();
    if known { point.between(ratio.low, ratio.high) } else { point }
}

fn bars(id: &str, title: &str, x: &str, y: Axis, series: Vec<Series>, note: &str) -> Option<Chart> {
    let series: Vec<Series> = series.into_iter().filter(|s| !s.points.is_empty()).collect();
    let measured = series.iter().any(|series| series.origin == Origin::Measured);
    measured.then(|| Chart {
        id: id.to_owned(),
        title: title.to_owned(),
        kind: ChartKind::Bars,
        x: label_axis(x),
        y,
        series,
        note: (!note.is_empty()).then(|| note.to_owned()),
    })
}

fn times(title: &str) -> Axis {
    Axis { title: title.to_owned(), unit: "times".to_owned(), log: false }
}

fn aes_worth(figures: &Figures<'_>, study: &Study) -> Option<Chart> {
    let of = |arm: &str, name: &str| {
        let without = format!("{arm}-noaes");
        let point = |a: Algorithm| {
            let at = At::page(a.mode, a.key_bits, arm);
            Some(bar(a.title(), figures.ratio(at, at.arm(&without))?))
        };
        let all = figures.algorithms().into_iter();
        let points = all.filter(|a| a.mode != Mode::ChaCha20Poly1305).filter_map(point).collect();
        Series { name: name.to_owned(), points, ..Series::default() }
    };
    let theirs = |mode: Mode| {
        let rate = |aes| study.rate(mode, 128, Direction::Encrypt, aes, PAGE_BYTES);
        let title = Algorithm { mode, key_bits: 128 }.title();
        Some(Point::label(title, rate(true)? / rate(false)?))
    };
    let points = MODES.into_iter().filter_map(theirs).collect();
    let series = vec![
        of("openssl", "OpenSSL"),
        of("aws-lc", "AWS-LC"),
        Series { name: "study".to_owned(), origin: Origin::Study, points, ..Series::default() },
    ];
    let title = "What the CPU's AES instructions are worth, encrypting a page";
    bars("aes-worth", title, "algorithm", times("with over without"), series, "")
}

fn key_length(figures: &Figures<'_>, study: &Study) -> Option<Chart> {
    let rate =
        |case: &str, arm: &str| figures.named(case, arm, &figure(Direction::Encrypt, PAGE_BYTES));
    let mut series = Vec::new();
    for (mode, arm, name) in [
        (Mode::Ctr, "openssl", "CTR, OpenSSL"),
        (Mode::Cbc, "openssl", "CBC, OpenSSL"),
        (Mode::Gcm, "openssl", "GCM, OpenSSL"),
        (Mode::Gcm, "aws-lc", "GCM, AWS-LC"),
    ] {
        let point = |bits: &u16| {
            let case = Algorithm { mode, key_bits: *bits }.to_string();
            Some(Point::label(format!("{bits} bits"), rate(&case, arm)?))
        };
        let points = mode.key_bits().iter().filter_map(point).collect();
        series.push(Series { name: name.to_owned(), points, ..Series::default() });
    }
    let theirs = |bits: u16| study.rate(Mode::Ctr, bits, Direction::Encrypt, true, PAGE_BYTES);
    let point = |bits| Some(Point::label(format!("{bits} bits"), theirs(bits)?));
    let points = [128, 192, 256].into_iter().filter_map(point).collect();
    let (name, arm) = ("CTR (study)".to_owned(), "CTR, OpenSSL".to_owned());
    series.push(Series { name, arm, origin: Origin::Study, points });
    let title = "What key length costs, encrypting a page";
    bars("key-length", title, "key length", speed_axis(), series, "")
}

fn directions(figures: &Figures<'_>) -> Option<Chart> {
    let of = |arm: &str, name: &str| {
        let point = |a: Algorithm| {
            let at = At::page(a.mode, a.key_bits, arm);
            Some(bar(a.title(), figures.ratio(at.decrypt(), at)?))
        };
        let points = figures.algorithms().into_iter().filter_map(point).collect();
        Series { name: name.to_owned(), points, ..Series::default() }
    };
    let series = vec![of("openssl", "OpenSSL"), of("aws-lc", "AWS-LC")];
    let title = "Decrypting against encrypting, a page";
    bars("directions", title, "algorithm", times("decrypting over encrypting"), series, "")
}
