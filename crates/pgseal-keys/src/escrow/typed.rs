//! Reads escrow copies that a person types line by line.

use std::io::{self, BufRead, Write};

use zeroize::Zeroizing;

use super::{EscrowCopy, OpenedBy, TextReader, TextStep};
use crate::error::KeyError;

const ORIGIN: &str = "typed copy";

/// Asks on the terminal for one copy or, if shares open it, for as many copies as are needed. Asks
/// at once again for a mistyped line. Does not echo the lines of a share.
///
/// # Errors
/// [`KeyError::ProviderFailed`] when the terminal cannot be read or its input ends.
pub fn read_typed() -> Result<Vec<EscrowCopy>, KeyError> {
    let mut copies: Vec<EscrowCopy> = Vec::new();
    loop {
        say(match copies.len() {
            0 => "Type the numbered lines of the escrow copy, one after the other.".to_owned(),
            have => format!("Now the lines of another share; {have} so far."),
        });
        let copy = read_one()?;
        let OpenedBy::Shares { threshold, .. } = copy.opened_by else { return Ok(vec![copy]) };
        match copies.iter().any(|known| known.share_index() == copy.share_index()) {
            true => say("That share was typed before.".to_owned()),
            false => copies.push(copy),
        }
        if copies.len() >= usize::from(threshold) {
            return Ok(copies);
        }
    }
}

fn read_one() -> Result<EscrowCopy, KeyError> {
    let mut reader = TextReader::new(ORIGIN)?;
    loop {
        let prompt = match reader.count() {
            Some(count) => format!("Line {} of {count}: ", reader.wanted()),
            None => "Line 1: ".to_owned(),
        };
        let line = if reader.has_share() { hidden(&prompt)? } else { shown(&prompt)? };
        if line.trim().is_empty() {
            continue;
        }
        match reader.line(&line) {
            Ok(TextStep::More) => {}
            Ok(TextStep::Done(copy)) => return Ok(*copy),
            Err(KeyError::EscrowLine { line, what, .. }) => say(format!("Line {line} {what}.")),
            Err(error) => return Err(error),
        }
    }
}

fn failed(what: String) -> KeyError {
    KeyError::ProviderFailed {
        provider: ORIGIN.to_owned(),
        what: format!("{what}; give the copy as a file instead"),
    }
}

fn say(text: String) {
    // A failure to show the text is no reason to stop.
    let _ = writeln!(io::stderr(), "{text}");
}

fn shown(prompt: &str) -> Result<Zeroizing<String>, KeyError> {
    let _ = write!(io::stderr(), "{prompt}");
    let mut line = Zeroizing::new(String::new());
    match io::stdin().lock().read_line(&mut line) {
        Ok(0) => Err(failed("the input ends before the copy does".to_owned())),
        Ok(_) => Ok(line),
        Err(error) => Err(failed(format!("the terminal cannot be read: {error}"))),
    }
}

fn hidden(prompt: &str) -> Result<Zeroizing<String>, KeyError> {
    rpassword::prompt_password(prompt)
        .map(Zeroizing::new)
        .map_err(|error| failed(format!("the terminal cannot be read: {error}")))
}
