//! What the images of a test showed: what was lost, how many images there were of each kind, and
//! where the time went.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The findings and figures of all images.
#[derive(Debug, Default)]
pub struct Findings {
    texts: Vec<String>,
    new: bool,
    /// Images and findings of each kind.
    kinds: BTreeMap<&'static str, (u64, u64)>,
    images: u64,
    times: BTreeMap<&'static str, Duration>,
}

impl Findings {
    /// Adds the findings of one image.
    pub fn add(&mut self, kind: &'static str, found: &[String], image: impl FnOnce() -> String) {
        let counts = self.kinds.entry(kind).or_default();
        counts.0 += 1;
        self.images += 1;
        self.new = !found.is_empty();
        if self.new {
            counts.1 += 1;
            let text = format!("{kind}: {}:\n  {}", image(), found.join("\n  "));
            eprintln!("{text}");
            self.texts.push(text);
        }
    }

    /// Adds the time since `start` to that of a step.
    pub fn spent(&mut self, step: &'static str, start: Instant) {
        *self.times.entry(step).or_default() += start.elapsed();
    }

    /// Whether the last image had a finding.
    pub fn is_new(&self) -> bool {
        self.new
    }

    /// Whether an image had a finding with these words.
    pub fn has(&self, words: &str) -> bool {
        self.texts.iter().any(|text| text.contains(words))
    }

    /// How many images were judged.
    pub fn images(&self) -> u64 {
        self.images
    }

    /// Prints how many images of each kind there were, with how many findings, and the mean time of
    /// each step for an image.
    pub fn print(&self, test: &str) {
        eprintln!("{test}: {} images, {} with findings", self.images, self.texts.len());
        for (kind, (images, found)) in &self.kinds {
            eprintln!(
                "  {images:5} {kind}{}",
                match found {
                    0 => String::new(),
                    found => format!(", {found} with findings"),
                }
            );
        }
        let mean = |time: &Duration| time.as_secs_f64() / self.images.max(1) as f64;
        let steps: Vec<String> =
            self.times.iter().map(|(step, time)| format!("{step} {:.2}", mean(time))).collect();
        eprintln!("  seconds for each image: {}", steps.join(", "));
    }

    /// Ends the test; fails if there are findings.
    pub fn end(self, test: &str) {
        self.print(test);
        let count = self.texts.len();
        assert!(count == 0, "{count} of {} images:\n{}", self.images, self.texts.join("\n"));
    }
}
