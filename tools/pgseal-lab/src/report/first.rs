//! The first screen: whether the machine was too noisy, a tile for each subject, and one table.

use std::fmt::Write;

use super::Entry;
use super::colors::Colors;
use super::markup::escape;
use super::tables::{class_of, field};
use crate::answer::{Answer, Bar, Subject};
use crate::exhibits::{Column, Tone};

/// Rows of the table for each of several experiments; a page of one experiment shows all.
const ROWS: usize = 4;

/// The whole first screen.
pub fn screen(entries: &[Entry], colors: &Colors) -> String {
    let banner = banner(entries);
    let noisy = if banner.is_empty() { "" } else { " noisy" };
    let mut out = format!("<section class=\"first{noisy}\">{banner}");
    out.push_str("<div class=\"tiles\">");
    for subject in Subject::ALL {
        match answer_of(entries, subject) {
            Some((entry, answer)) => out.push_str(&tile(entry, answer, colors)),
            None if entries.len() > 1 => out.push_str(&unmeasured(subject)),
            None => {}
        }
    }
    out.push_str("</div>");
    out.push_str(&table(entries));
    out.push_str("</section>");
    out
}

/// The answer about a subject; that of the experiment made for it, if there are two.
fn answer_of(entries: &[Entry], subject: Subject) -> Option<(&Entry, &Answer)> {
    let mut found: Vec<(&Entry, &Answer)> = entries
        .iter()
        .filter_map(|entry| Some((entry, entry.exhibits.answer.as_ref()?)))
        .filter(|(_, answer)| answer.subject == subject)
        .collect();
    found.sort_by_key(|(entry, _)| entry.results.experiment != subject.experiment());
    found.first().copied()
}

/// What a reader must know before any figure: nothing can be told from a noisy run.
fn banner(entries: &[Entry]) -> String {
    let noisy: Vec<&Entry> = entries.iter().filter(|e| e.analysis.is_too_noisy()).collect();
    if noisy.is_empty() {
        return String::new();
    }
    let mut out = String::from(
        "<div class=\"banner\" role=\"alert\"><h2>This machine was too noisy to tell</h2><ul>",
    );
    for entry in &noisy {
        let Some(noise) = entry.analysis.noise() else { continue };
        // Writing to a String cannot fail.
        let _ = write!(
            out,
            "<li>{}: the same server, measured twice, differed too much in {} of {} cases, by up to \
             {:.0} % ({}).</li>",
            escape(&entry.results.experiment),
            noise.noisy,
            noise.cases,
            noise.worst_percent,
            escape(&noise.worst)
        );
    }
    let _ = write!(
        out,
        "</ul><p>What to do: stop other programs, and on a virtual machine ask for CPUs of its own. Then \
         measure again, into another directory; <code>--wait-quiet</code> waits until the machine is \
         idle:</p><pre><code>{}</code></pre></div>",
        escape(
            &noisy
                .iter()
                .map(|entry| format!("{} --wait-quiet --output DIR", entry.results.command))
                .collect::<Vec<_>>()
                .join("\n")
        )
    );
    out
}

fn tile(entry: &Entry, answer: &Answer, colors: &Colors) -> String {
    let state = match (answer.tone, entry.analysis.is_too_noisy()) {
        (_, true) => "unsure",
        (Tone::Faint, _) => "unsure",
        (Tone::Bad, _) => "bad",
        (Tone::Good, _) => "good",
        (Tone::Plain, _) => "",
    };
    let base = answer.bar.as_ref().map_or("the baseline", |bar| bar.base.as_str());
    let mut out = format!(
        "<article class=\"tile {state}\"><h2><a href=\"#{}\">{}</a></h2><p class=\"who\">{} against \
         {}</p><p class=\"range\">{}</p>",
        escape(&entry.results.experiment),
        answer.subject.title(),
        escape(&answer.arm),
        escape(base),
        escape(&answer.range)
    );
    if let Some(bar) = &answer.bar {
        out.push_str(&drawn(bar, colors));
    }
    let study = if answer.study.is_empty() { "no figure" } else { &answer.study };
    let _ = write!(
        out,
        "<p class=\"theirs\"><span class=\"tag\">study</span> {}</p><p class=\"verdict {}\">{}</p></article>",
        escape(study),
        class_of(answer.tone),
        escape(&answer.verdict)
    );
    out
}

fn unmeasured(subject: Subject) -> String {
    format!(
        "<article class=\"tile unsure\"><h2>{}</h2><p class=\"who\">no results here</p><p \
         class=\"range\">no figure</p><p class=\"theirs\"><code>pgseal lab {}</code></p><p \
         class=\"verdict faint\">Not measured on this machine</p></article>",
        subject.title(),
        subject.experiment()
    )
}

/// Two bars: the baseline, and the arm from the lower to the upper end of its range.
fn drawn(bar: &Bar, colors: &Colors) -> String {
    let width = 240.0;
    let most = bar.high.max(1.0);
    let at = |times: f64| times / most * width;
    let color = colors.of_key(&bar.id).unwrap_or(0);
    format!(
        "<svg class=\"tilebar s{color}\" viewBox=\"0 0 {width} 26\" preserveAspectRatio=\"none\" role=\"img\" \
         aria-label=\"{}\"><rect class=\"base-bar\" y=\"2\" width=\"{:.1}\" height=\"9\"/><rect class=\"bar\" \
         y=\"15\" width=\"{:.1}\" height=\"9\"/><rect class=\"bar upto\" x=\"{:.1}\" y=\"15\" width=\"{:.1}\" \
         height=\"9\"/></svg>",
        escape(&format!("{}: {:.2} to {:.2} times {}", bar.arm, bar.low, bar.high, bar.base)),
        at(1.0),
        at(bar.low),
        at(bar.low),
        at(bar.high) - at(bar.low)
    )
}

fn table(entries: &[Entry]) -> String {
    let most = if entries.len() > 1 { ROWS } else { usize::MAX };
    let answers: Vec<&Answer> =
        entries.iter().filter_map(|entry| entry.exhibits.answer.as_ref()).collect();
    if answers.is_empty() {
        return String::new();
    }
    let has_study = answers
        .iter()
        .any(|answer| answer.lines.iter().take(most).any(|line| !line.study.is_empty()));
    let mut out = String::from(
        "<div class=\"card onetable\"><div class=\"scroll\"><table><thead><tr><th>Work</th>\
         <th class=\"n\">Cost</th><th class=\"n\">Baseline</th><th class=\"n\">Measured</th><th>With</th>",
    );
    if has_study {
        out.push_str("<th class=\"n study\">Study</th>");
    }
    out.push_str("</tr></thead><tbody>");
    let cost = Column::number("Cost", "time");
    for subject in Subject::ALL {
        for answer in answers.iter().filter(|answer| answer.subject == subject) {
            for line in answer.lines.iter().take(most) {
                let _ = write!(
                    out,
                    "<tr><td>{}</td>{}<td class=\"n\">{}</td><td class=\"n\">{}</td><td \
                     class=\"with\">{}</td>",
                    escape(&line.what),
                    field(&cost, &line.cost),
                    escape(&line.base),
                    escape(&line.value),
                    escape(&line.arm)
                );
                if has_study {
                    let _ = write!(out, "<td class=\"n study\">{}</td>", escape(&line.study));
                }
                out.push_str("</tr>");
            }
        }
    }
    out.push_str(
        "</tbody></table></div><p class=\"note\">Cost: time for the same work (of sizes: bytes). Plus is more \
         than the baseline, minus is less. Red is more than it should be.</p></div>",
    );
    out
}
