//! `pgseal help`: the pages of docs/, which are in the program, and the help of a command.

use std::io::Write;

use clap::Command;

use crate::error::CliError;
use crate::exit;
use crate::out::Out;

const EXAMPLES: &str = "\
Examples:
  pgseal help                   the topics
  pgseal help keys | less       the page about keys
  pgseal help key rotate        the same as: pgseal key rotate --help";

/// Print a page of the documentation, or the help of a command
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A topic, or the name of a command; without it: the list of topics
    #[arg(value_name = "TOPIC")]
    topic: Vec<String>,
}

/// The pages, in the order of their names, and what stands in them.
const PAGES: &[(&str, &str)] = &[
    ("advise", include_str!("../../../../docs/advise.md")),
    ("anchor", include_str!("../../../../docs/anchor.md")),
    ("audit", include_str!("../../../../docs/audit.md")),
    ("backup", include_str!("../../../../docs/backup.md")),
    ("checksums", include_str!("../../../../docs/checksums.md")),
    ("columns", include_str!("../../../../docs/columns.md")),
    ("comparison", include_str!("../../../../docs/comparison.md")),
    ("compliance", include_str!("../../../../docs/compliance.md")),
    ("config", include_str!("../../../../docs/config.md")),
    ("containers", include_str!("../../../../docs/containers.md")),
    ("convert", include_str!("../../../../docs/convert.md")),
    ("costs", include_str!("../../../../docs/costs.md")),
    ("damage", include_str!("../../../../docs/damage.md")),
    ("debian", include_str!("../../../../docs/debian.md")),
    ("doctor", include_str!("../../../../docs/doctor.md")),
    ("duties", include_str!("../../../../docs/duties.md")),
    ("extensions", include_str!("../../../../docs/extensions.md")),
    ("fips", include_str!("../../../../docs/fips.md")),
    ("first-hour", include_str!("../../../../docs/first-hour.md")),
    ("fleet", include_str!("../../../../docs/fleet.md")),
    ("key-stores", include_str!("../../../../docs/key-stores.md")),
    ("keys", include_str!("../../../../docs/keys.md")),
    ("kubernetes", include_str!("../../../../docs/kubernetes.md")),
    ("lab", include_str!("../../../../docs/lab.md")),
    ("lab-columns", include_str!("../../../../docs/lab-columns.md")),
    ("lab-instance", include_str!("../../../../docs/lab-instance.md")),
    ("lab-modes", include_str!("../../../../docs/lab-modes.md")),
    ("migrate", include_str!("../../../../docs/migrate.md")),
    ("modules", include_str!("../../../../docs/modules.md")),
    ("monitoring", include_str!("../../../../docs/monitoring.md")),
    ("patroni", include_str!("../../../../docs/patroni.md")),
    ("reference", include_str!("../../../../docs/reference.md")),
    ("replication", include_str!("../../../../docs/replication.md")),
    ("rpm", include_str!("../../../../docs/rpm.md")),
    ("sharding", include_str!("../../../../docs/sharding.md")),
    ("start", include_str!("../../../../docs/start.md")),
    ("tls", include_str!("../../../../docs/tls.md")),
    ("troubleshooting", include_str!("../../../../docs/troubleshooting.md")),
    ("upgrade", include_str!("../../../../docs/upgrade.md")),
    ("versions", include_str!("../../../../docs/versions.md")),
];

/// `command`: the whole command line.
pub fn run(args: &Args, command: &Command) -> Result<u8, CliError> {
    let text = match args.topic.as_slice() {
        [] => topics(),
        [topic] => match page(topic) {
            Some(page) => page,
            None => of_command(command, &args.topic)?,
        },
        names => of_command(command, names)?,
    };
    let mut out = Out::new();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(exit::SOUND)
}

/// A page without the marks for tests, which are comments of HTML.
fn page(topic: &str) -> Option<String> {
    let name = topic.strip_suffix(".md").unwrap_or(topic);
    let (_, text) = PAGES.iter().find(|(page, _)| *page == name)?;
    Some(without_comments(text))
}

/// The text without comments of HTML, and without the empty lines that they leave behind.
fn without_comments(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("<!--") {
        kept.push_str(before);
        let Some((_, behind)) = after.split_once("-->") else { return kept };
        let own_line = before.is_empty() || before.ends_with('\n');
        rest = if own_line { behind.strip_prefix('\n').unwrap_or(behind) } else { behind };
    }
    kept.push_str(rest);
    kept
}

fn of_command(whole: &Command, names: &[String]) -> Result<String, CliError> {
    let mut command = whole.clone();
    command.build();
    let mut at = &mut command;
    for name in names {
        at = at.find_subcommand_mut(name).ok_or_else(|| {
            CliError::Usage(format!(
                "there is no topic and no command \"{}\"; see the topics with: pgseal help",
                names.join(" ")
            ))
        })?;
    }
    Ok(at.render_long_help().to_string())
}

fn topics() -> String {
    let width = PAGES.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines = PAGES.iter().map(|(name, text)| format!("  {name:width$}  {}\n", title(text)));
    format!(
        "Topics, for \"pgseal help TOPIC\":\n{}\nThe commands: pgseal --help\n",
        lines.collect::<String>()
    )
}

/// The title of a page: its first heading.
fn title(text: &str) -> &str {
    text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// A page that is added to docs/ is a topic.
    #[test]
    fn every_page_of_the_documentation_is_a_topic() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let mut names: Vec<String> = fs::read_dir(docs)
            .unwrap()
            .filter_map(|entry| {
                entry.unwrap().file_name().to_str()?.strip_suffix(".md").map(str::to_owned)
            })
            .filter(|name| name != "README")
            .collect();
        names.sort_unstable();
        let topics: Vec<&str> = PAGES.iter().map(|(name, _)| *name).collect();
        assert_eq!(topics, names);
    }

    #[test]
    fn a_page_is_shown_without_the_marks_for_tests() {
        for (name, text) in PAGES {
            let shown = page(name).unwrap();
            assert!(!shown.contains("<!--"), "{name}");
            assert!(shown.contains(title(text)) && !title(text).is_empty(), "{name}");
        }
        assert_eq!(without_comments("a\n<!-- x\ny -->\nb <!-- z -->c\n"), "a\nb c\n");
    }

    #[test]
    fn the_help_of_a_command_is_found_below_others() {
        let whole = crate::cmd::command();
        let names = ["key".to_owned(), "rotate".to_owned()];
        assert!(of_command(&whole, &names).unwrap().contains("Usage: pgseal key rotate"));
        let error = of_command(&whole, &["none".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("no topic and no command \"none\""), "{error}");
    }
}
