//! The text form of an escrow copy (`spec/key-escrow.md`, section 3), made to be printed and typed
//! in again: each line has its own check.

use std::fmt::Write;

use data_encoding::{Encoding, Specification};
use zeroize::Zeroizing;

use super::binary::{self, KIND_AT, KIND_SHARES, PREFIX_LEN};
use super::{EscrowCopy, OpenedBy};
use crate::error::KeyError;
use crate::wrap;

const BEGIN: &str = "-----BEGIN PGSEAL ESCROW COPY-----";
const END: &str = "-----END PGSEAL ESCROW COPY-----";
/// Bytes on each line but the last, which has the remaining bytes.
const LINE_LEN: usize = 20;
const GROUP_LEN: usize = 4;
const CHECK_LEN: usize = 4;
const SYMBOLS: &str = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// Reads one copy line by line, so that a person who types it learns of each mistake at once.
pub struct TextReader {
    origin: String,
    base32: Encoding,
    bytes: Zeroizing<Vec<u8>>,
    whole_len: Option<usize>,
    lines: usize,
}

/// What follows after an accepted line.
#[derive(Debug)]
pub enum TextStep {
    /// The copy has more lines.
    More,
    /// That was the last line, and this is the copy.
    Done(Box<EscrowCopy>),
}

impl TextReader {
    /// A reader that expects the first line. `origin` says in messages where the lines are read.
    ///
    /// # Errors
    /// [`KeyError::Internal`].
    pub fn new(origin: &str) -> Result<TextReader, KeyError> {
        Ok(TextReader {
            origin: origin.to_owned(),
            base32: base32()?,
            bytes: Zeroizing::new(Vec::new()),
            whole_len: None,
            lines: 0,
        })
    }

    /// The number of the line that [`TextReader::line`] expects next, from 1.
    #[must_use]
    pub fn wanted(&self) -> usize {
        self.lines + 1
    }

    /// The number of lines of the copy; `None` before the first line.
    #[must_use]
    pub fn count(&self) -> Option<usize> {
        self.whole_len.map(|len| len.div_ceil(LINE_LEN))
    }

    /// Whether the copy contains a share, which is secret.
    pub(super) fn has_share(&self) -> bool {
        self.bytes.get(KIND_AT) == Some(&KIND_SHARES)
    }

    /// Accepts the next line. After an error, the same line is expected again.
    ///
    /// # Errors
    /// [`KeyError::EscrowLine`]; for the last line also those of [`EscrowCopy::from_bytes`].
    pub fn line(&mut self, text: &str) -> Result<TextStep, KeyError> {
        let wanted = self.wanted();
        let bad = |what| KeyError::EscrowLine { origin: self.origin.clone(), line: wanted, what };
        let body = match text.split_once('.') {
            Some((number, _)) if number.trim().parse() != Ok(wanted) => {
                return Err(bad("is missing: another one stands in its place"));
            }
            Some((_, body)) => body,
            None => text,
        };
        let is_symbol = |c: &char| !c.is_whitespace() && *c != '-';
        let symbols = Zeroizing::new(body.chars().filter(is_symbol).collect::<String>());
        let left = self.whole_len.map_or(LINE_LEN, |len| len.saturating_sub(self.bytes.len()));
        let expected_len = self.base32.encode_len(left.min(LINE_LEN));
        let split = symbols.len().checked_sub(CHECK_LEN).filter(|_| symbols.is_ascii());
        let Some((data, check)) = split.map(|at| symbols.split_at(at)) else {
            return Err(bad("is mistyped: it is too short, or has a character that no line has"));
        };
        if data.len() != expected_len {
            return Err(bad("is mistyped: there are too many or too few characters"));
        }
        let mut room = Zeroizing::new(vec![0; LINE_LEN + 1]);
        let decoded = self
            .base32
            .decode_len(data.len())
            .ok()
            .and_then(|len| room.get_mut(..len))
            .and_then(|room| self.base32.decode_mut(data.as_bytes(), room).ok())
            .and_then(|len| room.get(..len))
            .ok_or_else(|| bad("is mistyped: it has a character that no line has"))?;
        let folded = fold(check);
        if folded != line_check(&self.base32, wanted, decoded)? {
            return Err(bad("is mistyped: its check does not fit"));
        }
        // Not `extend_from_slice` on `self.bytes`: a reallocation would leave an unwiped copy.
        let mut grown = Zeroizing::new(Vec::with_capacity(self.bytes.len() + decoded.len()));
        grown.extend_from_slice(&self.bytes);
        grown.extend_from_slice(decoded);
        if self.whole_len.is_none() {
            let prefix = grown.get(..PREFIX_LEN).unwrap_or_default();
            let len = binary::whole_len(prefix).map_err(|fault| fault.at(&self.origin))?;
            self.whole_len = Some(len);
        }
        self.bytes = grown;
        self.lines = wanted;
        if self.whole_len == Some(self.bytes.len()) {
            let copy = EscrowCopy::from_bytes(&self.bytes, &self.origin)?;
            return Ok(TextStep::Done(Box::new(copy)));
        }
        Ok(TextStep::More)
    }
}

/// Reads all copies in a text. Text before, between and after the copies is ignored.
///
/// # Errors
/// [`KeyError::EscrowLine`] names the line; [`KeyError::EscrowDamaged`] when there is no copy.
pub fn read_all(text: &str, origin: &str) -> Result<Vec<EscrowCopy>, KeyError> {
    let mut copies = Vec::new();
    let mut reader: Option<TextReader> = None;
    let mut is_done = false;
    for line in text.lines().map(str::trim) {
        match &mut reader {
            None if line == BEGIN => {
                reader = Some(TextReader::new(origin)?);
                is_done = false;
            }
            Some(open) if line == END && !is_done => return Err(missing(open)),
            Some(_) if line == END => reader = None,
            Some(open) if !line.is_empty() => {
                if is_done {
                    let line = open.wanted();
                    let (origin, what) = (origin.to_owned(), "is one too many");
                    return Err(KeyError::EscrowLine { origin, line, what });
                }
                if let TextStep::Done(copy) = open.line(line)? {
                    copies.push(*copy);
                    is_done = true;
                }
            }
            _ => {}
        }
    }
    match reader {
        Some(open) if !is_done => Err(missing(&open)),
        _ if copies.is_empty() => Err(KeyError::EscrowDamaged {
            origin: origin.to_owned(),
            what: format!("there is no line \"{BEGIN}\""),
            remedy: "give what pgseal key backup printed, that line included",
        }),
        _ => Ok(copies),
    }
}

fn missing(reader: &TextReader) -> KeyError {
    let (origin, line) = (reader.origin.clone(), reader.wanted());
    KeyError::EscrowLine { origin, line, what: "is missing" }
}

impl EscrowCopy {
    /// The copy as text, after a heading that explains it.
    ///
    /// # Errors
    /// [`KeyError::Internal`].
    pub fn to_text(&self) -> Result<Zeroizing<String>, KeyError> {
        let bytes = self.to_bytes()?;
        let base32 = base32()?;
        let lines = bytes.len().div_ceil(LINE_LEN);
        // Large enough, because a reallocation would leave an unwiped copy of a share.
        let mut text = Zeroizing::new(String::with_capacity(2048 + lines * 64));
        self.head(&mut text).map_err(|_| KeyError::Internal("writing text"))?;
        text.push_str(BEGIN);
        text.push('\n');
        for (index, chunk) in bytes.chunks(LINE_LEN).enumerate() {
            let data = Zeroizing::new(base32.encode(chunk));
            let check = line_check(&base32, index + 1, chunk)?;
            let _ = write!(text, "{:>3}.", index + 1);
            for (at, symbol) in data.chars().enumerate() {
                if at % GROUP_LEN == 0 {
                    text.push(' ');
                }
                text.push(symbol);
            }
            let _ = writeln!(text, "  {check}");
        }
        text.push_str(END);
        text.push('\n');
        Ok(text)
    }

    fn head(&self, text: &mut String) -> std::fmt::Result {
        let list: Vec<u32> = self.generations.iter().map(|entry| entry.generation.0).collect();
        writeln!(
            text,
            "Escrow copy of a pgseal keyring: the data keys of one cluster, encrypted.\n"
        )?;
        writeln!(text, "Keyring      {}", self.keyring_id)?;
        writeln!(text, "Made         {}", self.made)?;
        writeln!(text, "Generations  {} (new files: {})", ranges(&list), self.active)?;
        writeln!(text, "Opened by    {}", self.opened_by)?;
        if let (Some(index), OpenedBy::Shares { limit, .. }) = (self.share_index(), &self.opened_by)
        {
            writeln!(
                text,
                "This is      share {index} of {limit}: keep it secret, and apart from the others"
            )?;
        }
        writeln!(
            text,
            "\nIt opens the cluster's files when the key or the keyring is lost; generations made later are\n\
             not in it. Keep it away from the data and its backups. To use it:\n\n    \
             pgseal key restore DIR -K NEW_KEY THIS_FILE     (without THIS_FILE: type the lines below)\n"
        )
    }
}

/// Ascending numbers in short form: `1-3, 7`.
#[must_use]
pub fn ranges(numbers: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match parts.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*number) => *last = *number,
            _ => parts.push((*number, *number)),
        }
    }
    let show = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    parts.iter().map(show).collect::<Vec<_>>().join(", ")
}

/// Base32 without the letters I, L, O and U. Reading takes O for 0, and I and L for 1.
fn base32() -> Result<Encoding, KeyError> {
    let mut spec = Specification::new();
    spec.symbols.push_str(SYMBOLS);
    for (from, to) in [('O', '0'), ('o', '0'), ('I', '1'), ('i', '1'), ('L', '1'), ('l', '1')] {
        spec.translate.from.push(from);
        spec.translate.to.push(to);
    }
    for symbol in SYMBOLS.chars().filter(char::is_ascii_uppercase) {
        spec.translate.from.push(symbol.to_ascii_lowercase());
        spec.translate.to.push(symbol);
    }
    spec.encoding().map_err(|_| KeyError::Internal("base32"))
}

/// The check as it was printed: in capitals, with 0 for O, and 1 for I and L.
fn fold(check: &str) -> String {
    let one = |c: char| match c.to_ascii_uppercase() {
        'O' => '0',
        'I' | 'L' => '1',
        other => other,
    };
    check.chars().map(one).collect()
}

fn line_check(base32: &Encoding, number: usize, bytes: &[u8]) -> Result<String, KeyError> {
    let number = u16::try_from(number).unwrap_or(u16::MAX).to_le_bytes();
    let sum: [u8; 3] = wrap::sha256_start(&[b"pgseal-escrow-line", &number, bytes])?;
    // Base32 of 24 bits has five characters. The first four, for 20 bits, are the check.
    let mut text = base32.encode(&sum);
    text.truncate(CHECK_LEN);
    Ok(text)
}
