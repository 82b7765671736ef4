//! The help of the commands: paragraphs are wrapped once, at the width of the terminal.

use clap::Command;

/// Makes one line of each paragraph in the help of a command and of those below it. The sources
/// break lines, too, and clap would break these lines a second time on a narrow terminal.
pub fn flowing(command: Command) -> Command {
    let after = command.get_after_help().map(|text| joined(&text.to_string()));
    let long = command.get_long_about().map(|text| joined(&text.to_string()));
    let command = match after {
        Some(text) => command.after_help(text),
        None => command,
    };
    let command = match long {
        Some(text) => command.long_about(text),
        None => command,
    };
    command.mut_subcommands(flowing)
}

/// Joins the lines of each paragraph. Lines that begin with a space (examples, tables) stay.
fn joined(text: &str) -> String {
    let mut all = String::with_capacity(text.len());
    let mut is_prose = false;
    for line in text.lines() {
        let continues = is_prose && !line.is_empty() && !line.starts_with(' ');
        if !all.is_empty() {
            all.push(if continues { ' ' } else { '\n' });
        }
        all.push_str(line);
        is_prose = !line.is_empty() && !line.starts_with(' ');
    }
    all
}

#[cfg(test)]
mod tests {
    use super::joined;

    #[test]
    fn prose_is_joined_and_examples_are_not() {
        let text = "Examples:\n  one\n  two\n\nThis is\na paragraph.\n\nAnother one.";
        assert_eq!(joined(text), "Examples:\n  one\n  two\n\nThis is a paragraph.\n\nAnother one.");
        assert_eq!(joined("x:\n  a\nThen\nmore"), "x:\n  a\nThen more");
    }
}
