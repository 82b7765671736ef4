//! Parses PostgreSQL's configuration files for settings and includes: `guc-file.l` for settings,
//! `hba.c` for `pg_hba.conf` and `pg_ident.conf`.

use crate::conf_text;

/// What an include names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Included {
    /// One file.
    File,
    /// All files of a directory that end in `.conf`.
    Directory,
}

/// The settings of a file, in order, with names in lower case; `include` and its variants are among
/// them. Lines that are no settings are left out: the server refuses a file with such a line.
pub fn settings(text: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(text);
    let settings = text.lines().filter_map(conf_text::setting);
    settings.map(|(name, value)| (name.to_ascii_lowercase(), value)).collect()
}

/// The files that a `pg_hba.conf`, a `pg_ident.conf` or a file of names includes.
pub fn included(text: &[u8]) -> Vec<(Included, Vec<u8>)> {
    let mut found = Vec::new();
    // A line that ends in a backslash continues on the next one.
    let mut joined: Vec<Vec<u8>> = vec![Vec::new()];
    for line in text.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let (part, goes_on) = match line.strip_suffix(b"\\") {
            Some(part) => (part, true),
            None => (line, false),
        };
        if let Some(last) = joined.last_mut() {
            last.extend_from_slice(part);
        }
        if !goes_on {
            joined.push(Vec::new());
        }
    }
    for line in joined {
        let words = words(&line);
        let how = match words.first() {
            Some((word, false)) if word == b"include" || word == b"include_if_exists" => {
                Some(Included::File)
            }
            Some((word, false)) if word == b"include_dir" => Some(Included::Directory),
            _ => None,
        };
        if let (Some(how), Some((name, _))) = (how, words.get(1)) {
            found.push((how, name.clone()));
        }
        for (word, _) in words {
            if let Some(name) = word.strip_prefix(b"@").filter(|name| !name.is_empty()) {
                found.push((Included::File, name.to_vec()));
            }
        }
    }
    found
}

/// The words of a line, and whether each began with a quote (`next_token`).
fn words(line: &[u8]) -> Vec<(Vec<u8>, bool)> {
    let mut words = Vec::new();
    let mut word: Option<(Vec<u8>, bool)> = None;
    let mut quoted = false;
    for byte in line {
        match byte {
            b'"' => {
                quoted = !quoted;
                word.get_or_insert_with(|| (Vec::new(), true));
            }
            b'#' if !quoted => break,
            b' ' | b'\t' | b',' | b'\r' if !quoted => words.extend(word.take()),
            other => word.get_or_insert_with(|| (Vec::new(), false)).0.push(*other),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_the_server_reads_them() {
        let text = "# include 'no'\n Include = 'a b.conf' # x\ninclude_dir conf.d\n\
                    Work_Mem=4MB#x\nx.y = 'it''s \\'\\101'\n=\n";
        let wanted = [
            ("include", "a b.conf"),
            ("include_dir", "conf.d"),
            ("work_mem", "4MB"),
            ("x.y", "it's 'A"),
        ];
        let wanted: Vec<_> =
            wanted.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        assert_eq!(settings(text.as_bytes()), wanted);
    }

    #[test]
    fn access_files_name_files() {
        let text = b"# @no\nlocal all @admins,joe peer # @no\nhost \"@quoted file\" all 1.2.3.4/32 md5\n\
                     include extra.conf\ninclude_if_exists \"b c\"\ninclude_\\\ndir d\n\"include\" x\n";
        let found: Vec<(Included, String)> = included(text)
            .into_iter()
            .map(|(how, name)| (how, String::from_utf8(name).unwrap()))
            .collect();
        let wanted = [
            (Included::File, "admins"),
            // The server takes this one for a name and not for a file; one file more does no harm.
            (Included::File, "quoted file"),
            (Included::File, "extra.conf"),
            (Included::File, "b c"),
            (Included::Directory, "d"),
        ];
        assert_eq!(found, wanted.map(|(how, name)| (how, name.to_owned())));
    }
}
