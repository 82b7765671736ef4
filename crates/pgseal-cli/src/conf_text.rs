//! Reads and changes a few settings in the text of a configuration file. The values that the server
//! really uses are those that `postgres -C` prints.

const NAME: &str = "shared_preload_libraries";

const COMMENT: &str = "\
# Added by pgseal: this data directory is sealed. The guard module refuses to start the server
# without libpgseal.so, which would take the sealed files for damaged ones. Keep it first.";

const HINTS_COMMENT: &str = "\
# Added by pgseal: without data checksums, only this setting lets recovery repair every page that a
# crash has torn. The guard module refuses to start the server without one of the two.";

/// The text with the guard module added before the other preloaded modules; `None` if the text has
/// it already.
pub fn with_guard(text: &str, guard: &str) -> Option<String> {
    let others = preloaded(text).unwrap_or_default();
    if others.split(',').any(is_guard) {
        return None;
    }
    let value = if others.is_empty() { guard.to_owned() } else { format!("{guard},{others}") };
    Some(appended(text, COMMENT, &format!("{NAME} = {}", quoted(&value))))
}

/// The text with `wal_log_hints` switched on; `None` if it is on there.
pub fn with_log_hints(text: &str) -> Option<String> {
    let is_on = text.lines().rev().filter_map(setting).find_map(|(name, value)| {
        name.eq_ignore_ascii_case("wal_log_hints").then(|| value.eq_ignore_ascii_case("on"))
    });
    if is_on == Some(true) {
        return None;
    }
    Some(appended(text, HINTS_COMMENT, "wal_log_hints = on"))
}

/// The text with an empty line, a comment and a line of settings at its end.
fn appended(text: &str, comment: &str, line: &str) -> String {
    let break_before = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{text}{break_before}\n{comment}\n{line}\n")
}

/// The value of the last `data_directory` in the text, in quotes as Debian's programs write it.
pub fn data_directory(text: &str) -> Option<&str> {
    text.lines().rev().find_map(|line| {
        let value = line.trim_start().strip_prefix("data_directory")?.trim_start();
        let value = value.strip_prefix('=').unwrap_or(value).trim_start().strip_prefix('\'')?;
        value.split('\'').next()
    })
}

/// Whether an element of the list is the guard module: its name, or a path of it.
fn is_guard(element: &str) -> bool {
    let file = element.trim().rsplit('/').next().unwrap_or_default();
    file.strip_suffix(".so").unwrap_or(file) == "pgseal_guard"
}

/// The text without the guard module; the rest stays as it is.
pub fn without_guard(text: &str) -> String {
    let mut kept: Vec<String> = Vec::new();
    for line in text.split_inclusive('\n') {
        let Some(value) = preloads(line).filter(|value| value.split(',').any(is_guard)) else {
            kept.push(line.to_owned());
            continue;
        };
        let others: Vec<&str> = value.split(',').filter(|element| !is_guard(element)).collect();
        let others = others.join(",");
        let has_comment = take_comment(&mut kept);
        // The line that pgseal added repeats the value that was set before it.
        let before = kept.iter().rev().find_map(|line| preloads(line)).unwrap_or_default();
        if has_comment && before == others {
            if kept.last().is_some_and(|line| line == "\n") {
                kept.pop();
            }
        } else {
            kept.push(format!("{NAME} = {}\n", quoted(&others)));
        }
    }
    kept.concat()
}

/// Removes pgseal's comment from the end of the lines, if it is there.
fn take_comment(lines: &mut Vec<String>) -> bool {
    let comment: Vec<String> = COMMENT.lines().map(|line| format!("{line}\n")).collect();
    let is_there = lines.ends_with(&comment);
    if is_there {
        lines.truncate(lines.len() - comment.len());
    }
    is_there
}

/// The value of the last `shared_preload_libraries` in the text, which the server uses.
pub fn preloaded(text: &str) -> Option<String> {
    text.lines().rev().find_map(preloads)
}

/// The value, if the line sets `shared_preload_libraries`.
fn preloads(line: &str) -> Option<String> {
    let (name, value) = setting(line)?;
    name.eq_ignore_ascii_case(NAME).then(|| value.trim().to_owned())
}

/// The name and the value that a line sets; `include` and its variants count as names. `None` if
/// the line sets nothing, or the server would refuse it (`guc-file.l`).
pub fn setting(line: &str) -> Option<(&str, String)> {
    let line = line.trim_start();
    let end = line.find(|next: char| !is_of_word(next) && !matches!(next, '$' | '.'));
    let (name, rest) = line.split_at_checked(end.unwrap_or(line.len()))?;
    let rest = rest.trim_start();
    let rest = rest.strip_prefix('=').unwrap_or(rest).trim_start();
    let value = match rest.strip_prefix('\'') {
        Some(quoted) => unquoted(quoted)?,
        None => {
            let is_end = |next: char| !is_of_word(next) && !"-.:/".contains(next);
            rest.split(is_end).next().filter(|word| !word.is_empty())?.to_owned()
        }
    };
    (!name.is_empty()).then_some((name, value))
}

fn is_of_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_' || !letter.is_ascii()
}

/// The value of a quoted text whose first quote was removed (`DeescapeQuotedString`). `None` if the
/// quote is not closed in this line.
fn unquoted(text: &str) -> Option<String> {
    let mut value = String::new();
    let mut letters = text.chars().peekable();
    loop {
        match letters.next()? {
            '\'' => match letters.next() {
                Some('\'') => value.push('\''),
                _ => return Some(value),
            },
            '\\' => value.push(match letters.next()? {
                digit @ '0'..='7' => {
                    let mut code = digit.to_digit(8)?;
                    for _ in 0..2 {
                        let Some(next) = letters.peek().and_then(|next| next.to_digit(8)) else {
                            break;
                        };
                        letters.next();
                        code = code * 8 + next;
                    }
                    char::from_u32(code & 0xff)?
                }
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                other => other,
            }),
            '\n' => return None,
            letter => value.push(letter),
        }
    }
}

/// The value in quotes, as a configuration file needs it.
fn quoted(value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('\'', "''").replace('\n', "\\n");
    format!("'{value}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_edited_since_keeps_the_rest() {
        let text = format!(
            "a = 1\n\n{COMMENT}\nshared_preload_libraries = '/x/pgseal_guard.so,new'\nb = 2\n"
        );
        assert_eq!(without_guard(&text), "a = 1\n\nshared_preload_libraries = 'new'\nb = 2\n");
        let auto = "shared_preload_libraries = 'pgseal_guard, auto_explain'\n";
        assert_eq!(without_guard(auto), "shared_preload_libraries = ' auto_explain'\n");
        assert_eq!(
            without_guard("shared_preload_libraries = 'x'"),
            "shared_preload_libraries = 'x'"
        );
    }

    #[test]
    fn values_are_read_as_the_server_does() {
        let read = |text: &str| preloaded(&format!("shared_preload_libraries{text}\n"));
        for (text, value) in [
            (" = 'a''b, c\\'d'", Some("a'b, c'd")),
            ("=a/b-c.so# x", Some("a/b-c.so")),
            (" 'a' # 'b'", Some("a")),
            (" = 'a", None),
            (" = ", None),
            ("_too = 'a'", None),
            (".a = 'b'", None),
        ] {
            assert_eq!(read(text).as_deref(), value, "{text}");
        }
        let with = with_guard("shared_preload_libraries = 'a''b\\\\'", "pgseal_guard").unwrap();
        assert!(with.ends_with("\nshared_preload_libraries = 'pgseal_guard,a''b\\\\'\n"), "{with}");
    }

    #[test]
    fn wal_log_hints_is_switched_on_once() {
        let with = with_log_hints("a = 1\n#wal_log_hints = off\n").unwrap();
        assert!(with.ends_with("\nwal_log_hints = on\n"), "{with}");
        assert_eq!(with_log_hints(&with), None);
        assert_eq!(with_log_hints("Wal_Log_Hints 'ON'"), None);
        assert!(with_log_hints("wal_log_hints = on\nwal_log_hints = off\n").is_some());
    }

    #[test]
    fn the_data_directory_of_debian_s_form_is_read() {
        let text = "# data_directory = '/a'\ndata_directory = '/b c'\t# use data in it\n";
        assert_eq!(data_directory(text), Some("/b c"));
        assert_eq!(data_directory("data_directory = /b"), None);
    }
}
