//! The difference of two small texts as a unified diff that is safe to print.

use std::fmt::Write;

/// Lines around a change.
const CONTEXT: usize = 3;
/// If more line comparisons would be needed, all lines count as changed.
const MAX_WORK: usize = 4_000_000;

enum Step<'a> {
    Same(&'a str),
    Removed(&'a str),
    Added(&'a str),
}

/// The unified diff, with these file names; empty if the texts are equal. Control characters are
/// escaped, since an attacker may have written the texts.
pub fn unified(old_name: &str, old: &[u8], new_name: &str, new: &[u8]) -> String {
    let (old, new) = (String::from_utf8_lossy(old), String::from_utf8_lossy(new));
    let steps = steps(&old.lines().collect::<Vec<_>>(), &new.lines().collect::<Vec<_>>());
    let mut text = String::new();
    if steps.iter().all(|step| matches!(step, Step::Same(_))) {
        return text;
    }
    // Writing to a string cannot fail.
    let _ = writeln!(text, "--- {}\n+++ {}", shown(old_name), shown(new_name));
    let is_near = |at: usize| {
        let from = at.saturating_sub(CONTEXT);
        let to = (at + CONTEXT + 1).min(steps.len());
        steps.get(from..to).unwrap_or_default().iter().any(|step| !matches!(step, Step::Same(_)))
    };
    let (mut old_line, mut new_line) = (1, 1);
    let mut in_hunk = false;
    for (at, step) in steps.iter().enumerate() {
        let near = is_near(at);
        if near && !in_hunk {
            let length = (at..steps.len()).take_while(|at| is_near(*at)).count();
            let hunk = steps.get(at..at + length).unwrap_or_default();
            let old = hunk.iter().filter(|step| !matches!(step, Step::Added(_))).count();
            let new = hunk.iter().filter(|step| !matches!(step, Step::Removed(_))).count();
            let _ = writeln!(text, "@@ -{old_line},{old} +{new_line},{new} @@");
        }
        in_hunk = near;
        let (mark, line) = match step {
            Step::Same(line) => (' ', line),
            Step::Removed(line) => ('-', line),
            Step::Added(line) => ('+', line),
        };
        old_line += usize::from(mark != '+');
        new_line += usize::from(mark != '-');
        if near {
            let _ = writeln!(text, "{mark}{}", shown(line));
        }
    }
    text
}

/// Text without control characters.
pub fn shown(text: &str) -> String {
    let mut safe = String::new();
    for c in text.chars() {
        if c.is_control() && c != '\t' { safe.extend(c.escape_default()) } else { safe.push(c) }
    }
    safe
}

fn steps<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Step<'a>> {
    let start = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (old_rest, new_rest) =
        (old.get(start..).unwrap_or_default(), new.get(start..).unwrap_or_default());
    let end = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(a, b)| a == b).count();
    let old_middle = old_rest.get(..old_rest.len() - end).unwrap_or_default();
    let new_middle = new_rest.get(..new_rest.len() - end).unwrap_or_default();
    let mut steps: Vec<Step<'a>> = old.iter().take(start).map(|line| Step::Same(line)).collect();
    if old_middle.len().saturating_mul(new_middle.len()) > MAX_WORK {
        steps.extend(old_middle.iter().map(|line| Step::Removed(line)));
        steps.extend(new_middle.iter().map(|line| Step::Added(line)));
    } else {
        steps.extend(middle(old_middle, new_middle));
    }
    steps.extend(old_rest.iter().skip(old_middle.len()).map(|line| Step::Same(line)));
    steps
}

/// The steps between two lists of lines, by their longest common subsequence.
fn middle<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Step<'a>> {
    let width = new.len() + 1;
    let mut best = vec![0_u32; (old.len() + 1) * width];
    let get = |best: &[u32], a: usize, b: usize| best.get(a * width + b).copied().unwrap_or(0);
    for (a, old_line) in old.iter().enumerate().rev() {
        for (b, new_line) in new.iter().enumerate().rev() {
            let value = if old_line == new_line {
                get(&best, a + 1, b + 1) + 1
            } else {
                get(&best, a + 1, b).max(get(&best, a, b + 1))
            };
            if let Some(place) = best.get_mut(a * width + b) {
                *place = value;
            }
        }
    }
    let (mut a, mut b) = (0, 0);
    let mut steps = Vec::new();
    loop {
        match (old.get(a), new.get(b)) {
            (Some(x), Some(y)) if x == y => {
                steps.push(Step::Same(x));
                (a, b) = (a + 1, b + 1);
            }
            (Some(x), y) if y.is_none() || get(&best, a + 1, b) >= get(&best, a, b + 1) => {
                steps.push(Step::Removed(x));
                a += 1;
            }
            (_, Some(y)) => {
                steps.push(Step::Added(y));
                b += 1;
            }
            _ => break,
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_shown_with_what_is_around_it() {
        let old = "a\nb\nc\nd\ne\nf\ng\nh\n";
        let new = "a\nb\nc\nd\nX\nY\nf\ng\nh\nz\n";
        let wanted = "--- old\n+++ new\n@@ -2,7 +2,9 @@\n b\n c\n d\n-e\n+X\n+Y\n f\n g\n h\n+z\n";
        assert_eq!(unified("old", old.as_bytes(), "new", new.as_bytes()), wanted);
        assert_eq!(unified("old", old.as_bytes(), "new", old.as_bytes()), "");
        let added = unified("old", b"", "new", b"x\n");
        assert_eq!(added, "--- old\n+++ new\n@@ -1,0 +1,1 @@\n+x\n");
    }

    #[test]
    fn changes_far_apart_are_apart() {
        let lines: Vec<String> = (0..30).map(|n| n.to_string()).collect();
        let old = lines.join("\n");
        let new = old.replace("\n2\n", "\ntwo\n").replace("\n25\n", "\n");
        let text = unified("a", old.as_bytes(), "b", new.as_bytes());
        assert_eq!(text.matches("@@ -").count(), 2, "{text}");
        assert!(text.contains("@@ -23,7 +23,6 @@"), "{text}");
    }

    #[test]
    fn nothing_steers_the_terminal() {
        let text = unified("a", b"", "b", b"x\x1b[2Jy\r\x07\n");
        assert!(text.contains("+x\\u{1b}[2Jy\\r\\u{7}"), "{text}");
    }
}
