//! Rewrites `pg_hba.conf` (PostgreSQL documentation, "The pg_hba.conf File") so that TCP
//! connections need TLS.

/// The new rules, and what was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewritten {
    /// The new text.
    pub text: String,
    /// How many `host` rules became `hostssl`.
    pub changed: usize,
    /// How many `hostnossl` rules were turned into comments.
    pub disabled: usize,
    /// Notes for the administrator.
    pub notes: Vec<String>,
}

const MARK: &str = "# pgseal tls init: connections over TCP need TLS.";

/// The first matching rule counts, so these reject all connections without TLS, whatever rules and
/// included files follow.
const REJECT: &str = "\
hostnossl all all all reject
hostnossl replication all all reject";

/// Turns every `host` rule into `hostssl` and every `hostnossl` rule into a comment, and rejects
/// all other connections without TLS. Rules `local`, `hostssl` and `hostgssenc` do not change.
pub fn tls_only(old: &str, backup: &str) -> Rewritten {
    let mut done = Rewritten { text: String::new(), changed: 0, disabled: 0, notes: Vec::new() };
    let mut body = String::new();
    let (mut gss, mut tls) = (false, 0);
    let mut commented = false;
    let mut continues = false;
    for line in old.lines() {
        let begins = !std::mem::replace(&mut continues, line.ends_with('\\'));
        let trimmed = line.trim_start();
        let (word, rest) =
            trimmed.split_at(trimmed.find(char::is_whitespace).unwrap_or(trimmed.len()));
        let indent = &line[..line.len() - trimmed.len()];
        commented = commented && !begins;
        match word.trim_matches('"') {
            "host" if begins => {
                body.push_str(&format!("{indent}hostssl{rest}\n"));
                done.changed += 1;
                tls += 1;
                note_trust(rest, &mut done.notes);
                continue;
            }
            "hostnossl" if begins && !is_ours(trimmed) => {
                commented = true;
                done.disabled += 1;
            }
            "hostnossl" if begins => continue,
            "hostssl" if begins => {
                tls += 1;
                note_trust(rest, &mut done.notes);
            }
            "hostgssenc" if begins => gss = true,
            _ if line == MARK || line.starts_with("# The rules before: ") => continue,
            _ => {}
        }
        body.push_str(&format!("{}{line}\n", if commented { "# " } else { "" }));
    }
    if tls == 0 {
        done.notes.push(
            "no rule lets anybody in over TCP; add for example: hostssl all all samenet scram-sha-256"
                .to_owned(),
        );
    }
    let ours = format!("{MARK}\n# The rules before: {backup}\n{REJECT}\n");
    done.text = if gss {
        done.notes.push(
            "there are hostgssenc rules: connections that Kerberos encrypts are still let in"
                .to_owned(),
        );
        format!("{body}{ours}")
    } else {
        format!("{ours}{body}")
    };
    done
}

fn is_ours(line: &str) -> bool {
    REJECT.lines().any(|ours| ours == line)
}

fn note_trust(rule: &str, notes: &mut Vec<String>) {
    let words: Vec<&str> = rule.split_whitespace().collect();
    if words.contains(&"trust") {
        notes.push(format!(
            "this rule lets in whoever comes, without a password, encrypted or not: hostssl {}",
            words.join(" ")
        ));
    }
}

/// Whether [`tls_only`] would not change these rules.
pub fn is_tls_only(text: &str) -> bool {
    let without_marks = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    };
    without_marks(&tls_only(text, "").text) == without_marks(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "\
# TYPE  DATABASE        USER            ADDRESS                 METHOD
local   all             all                                     peer
host    all             all             127.0.0.1/32            scram-sha-256
\thost\treplication all ::1/128 trust
hostnossl all all 10.0.0.0/8 \\
  md5
hostssl all all 0.0.0.0/0 cert # host
\"host\" all all samenet ldap \\
host
";

    #[test]
    fn only_tcp_rules_change_and_no_rule_comes_before_the_rejection() {
        let done = tls_only(OLD, "old.conf");
        assert_eq!((done.changed, done.disabled), (3, 1));
        let want = "\
# pgseal tls init: connections over TCP need TLS.
# The rules before: old.conf
hostnossl all all all reject
hostnossl replication all all reject
# TYPE  DATABASE        USER            ADDRESS                 METHOD
local   all             all                                     peer
hostssl    all             all             127.0.0.1/32            scram-sha-256
\thostssl\treplication all ::1/128 trust
# hostnossl all all 10.0.0.0/8 \\
#   md5
hostssl all all 0.0.0.0/0 cert # host
hostssl all all samenet ldap \\
host
";
        assert_eq!(done.text, want);
        assert_eq!(done.notes.len(), 1, "{:?}", done.notes);
        assert!(done.notes[0].contains("::1/128 trust"));
        assert!(!is_tls_only(OLD));
    }

    #[test]
    fn a_second_run_changes_nothing() {
        let once = tls_only(OLD, "a");
        let twice = tls_only(&once.text, "a");
        assert_eq!(once.text, twice.text);
        assert_eq!((twice.changed, twice.disabled), (0, 0));
        assert!(is_tls_only(&once.text));
    }

    #[test]
    fn rules_for_kerberos_encryption_stay_and_are_noted() {
        let done = tls_only("hostgssenc all all all gss\nhost all all all gss\n", "b");
        let refusal = done.text.find("hostnossl all").unwrap();
        assert!(done.text.find("hostgssenc").unwrap() < refusal);
        assert!(done.notes.iter().any(|note| note.contains("Kerberos")));
    }

    #[test]
    fn rules_that_allow_no_tcp_connection_are_noted() {
        let done = tls_only("local all all peer\n", "b");
        assert!(done.notes.iter().any(|note| note.contains("no rule lets anybody in")));
    }
}
