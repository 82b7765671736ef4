//! One line to standard error, which is the server's log.
//!
//! The line is formatted on the stack and written with one call, so that code that must not
//! allocate can log as well.

use core::fmt::{self, Write};

use crate::os::real;

const MAX: usize = 1500;

struct Line {
    bytes: [u8; MAX],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MAX - 1 - self.len;
        let take = text.len().min(room);
        self.bytes[self.len..self.len + take].copy_from_slice(&text.as_bytes()[..take]);
        self.len += take;
        Ok(())
    }
}

/// Writes `pgseal: ...` and a line end. Keeps `errno`.
pub fn line(what: fmt::Arguments<'_>) {
    let errno = real::errno();
    let mut line = Line { bytes: [0; MAX], len: 0 };
    // Writing to the buffer cannot fail; a message that is too long is truncated.
    let _ = write!(line, "pgseal: {what}");
    line.bytes[line.len] = b'\n';
    // SAFETY: the buffer is valid for its length. The write fails if standard error is closed;
    // there is no other place to report to.
    unsafe { real::write(2, line.bytes.as_ptr().cast(), line.len + 1) };
    real::set_errno(errno);
}

/// Bytes of a path, shown as text.
pub struct Shown<'a>(pub &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            f.write_str(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                f.write_char('?')?;
            }
        }
        Ok(())
    }
}
