//! Standard output that tolerates a closed pipe, messages on standard error, and numbers for
//! people.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pgseal_core::verify::BlockRange;
use serde::Serialize;

/// Buffered standard output. If the reader closes the pipe (`| head`), the rest is dropped without
/// an error, so that the exit status is still that of the command.
pub struct Out {
    inner: BufWriter<StdoutLock<'static>>,
    closed: bool,
}

impl Out {
    /// Standard output.
    pub fn new() -> Out {
        Out { inner: BufWriter::with_capacity(1 << 16, io::stdout().lock()), closed: false }
    }

    /// Whether the reader has closed the pipe, so that no more output is needed.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// One JSON document, and a newline.
    pub fn json<T: Serialize>(&mut self, value: &T) -> io::Result<()> {
        let text = serde_json::to_string_pretty(value).map_err(io::Error::other)?;
        writeln!(self, "{text}")
    }

    fn absorb<T>(&mut self, result: io::Result<T>, instead: T) -> io::Result<T> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(instead)
            }
            other => other,
        }
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.closed {
            return Ok(bytes.len());
        }
        let result = self.inner.write(bytes);
        self.absorb(result, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.closed {
            return Ok(());
        }
        let result = self.inner.flush();
        self.absorb(result, ())
    }
}

/// Writes a secret to standard output without a buffer, which would keep a copy that nobody wipes.
pub fn secret(bytes: &[u8]) -> io::Result<()> {
    let mut off = 0;
    while let Some(rest) = bytes.get(off..).filter(|rest| !rest.is_empty()) {
        match rustix::io::write(rustix::stdio::stdout(), rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => off += written,
            Err(error) if error == rustix::io::Errno::INTR => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Whether standard output is a terminal.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// One message on standard error: `pgseal: what, which file; what to do next`.
pub fn complain(message: &str) {
    // If standard error is closed, too, the message is lost.
    let _ = writeln!(io::stderr(), "pgseal: {message}");
}

/// A progress bar of this form (`indicatif`) on standard error.
pub fn progress_bar(len: u64, is_hidden: bool, form: &str) -> ProgressBar {
    let target =
        if is_hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(Some(len), target);
    if let Ok(style) = ProgressStyle::with_template(form) {
        bar.set_style(style);
    }
    bar
}

/// A count of bytes for people: 1024-based, three digits.
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut rest = bytes as f64;
    let mut unit = 0;
    while rest >= 1024.0 && unit + 1 < UNITS.len() {
        rest /= 1024.0;
        unit += 1;
    }
    match UNITS.get(unit) {
        Some(name) if unit > 0 && rest < 100.0 => format!("{rest:.1} {name}"),
        Some(name) => format!("{rest:.0} {name}"),
        None => format!("{bytes} B"),
    }
}

/// `1 file`, `2 files`.
pub fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// A range of blocks: `7` or `7-9`.
pub fn blocks(range: &BlockRange) -> String {
    match range.count {
        0 | 1 => range.first.to_string(),
        count => format!("{}-{}", range.first, range.first.0.saturating_add(count - 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_well() {
        assert_eq!(human_bytes(0), "0 B");
        assert_eq!(human_bytes(1023), "1023 B");
        assert_eq!(human_bytes(1536), "1.5 KiB");
        assert_eq!(human_bytes(16 << 20), "16.0 MiB");
        assert_eq!(human_bytes(500 << 20), "500 MiB");
    }
}
