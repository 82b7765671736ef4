//! `pgseal completions`: the completion script for a shell.

use std::io::Write;

use clap::Command;
use clap_complete::Shell;

use crate::error::CliError;
use crate::exit;
use crate::out::Out;

const EXAMPLES: &str = "\
Examples:
  pgseal completions bash > /etc/bash_completion.d/pgseal
  pgseal completions zsh > ~/.zfunc/_pgseal";

/// Print the completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// What stands in the generated scripts where the source of a key is completed, and what completes
/// it instead: the beginning of a source, and behind `file:` the paths.
const ZSH_SOURCES: &str = r"(env\: file\: command\: passphrase\:)";
const ZSH_FUNCTION: &str = "\
_pgseal_source() {
    if compset -P 'file:'; then
        _files
    else
        compadd -S '' -- env: file: command: passphrase:
    fi
}

";
const FISH_SOURCES: &str = "-r -f -a \"env:\\t''
file:\\t''
command:\\t''
passphrase:\\t''\"";
const FISH_FUNCTION: &str = "\
function __fish_pgseal_source
    set -l word (string replace -r '^(--[a-z-]+=|-K)' '' -- (commandline -ct))
    if string match -q 'file:*' -- $word
        set -l path (string replace 'file:' '' -- $word)
        printf 'file:%s\\n' (complete -C\"__fish_pgseal_no_command $path\")
    else
        printf '%s\\n' env: file: command: passphrase:
    end
end

";
/// bash splits words at a colon and completes the paths behind it by itself. What it may not do is
/// set a space behind the colon.
const BASH_FUNCTION: &str = "\
_pgseal_source() {
    _pgseal \"$@\"
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *: ]]; then
        compopt -o nospace
    fi
    return 0
}

";

/// The script with sources of keys completed as above.
fn with_sources(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => match script.rfind("\nif [[ \"${BASH_VERSINFO[0]}\"") {
            Some(at) => {
                let (functions, registration) = script.split_at(at + 1);
                let registration = registration.replace("-F _pgseal ", "-F _pgseal_source ");
                format!("{functions}{BASH_FUNCTION}{registration}")
            }
            None => script.to_owned(),
        },
        Shell::Zsh => {
            let script = script.replace(ZSH_SOURCES, "_pgseal_source");
            script.replacen("_pgseal() {", &format!("{ZSH_FUNCTION}_pgseal() {{"), 1)
        }
        Shell::Fish => {
            let call = "-r -f -a \"(__fish_pgseal_source)\"";
            format!("{FISH_FUNCTION}{}", script.replace(FISH_SOURCES, call))
        }
        _ => script.to_owned(),
    }
}

/// `command`: the whole command line.
pub fn run(args: &Args, mut command: Command) -> Result<u8, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "pgseal", &mut script);
    let mut out = Out::new();
    let script = String::from_utf8_lossy(&script);
    out.write_all(with_sources(args.shell, &script).as_bytes())?;
    out.flush()?;
    Ok(exit::SOUND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::command;

    fn script(shell: Shell) -> String {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut command(), "pgseal", &mut script);
        with_sources(shell, &String::from_utf8(script).unwrap())
    }

    /// The generated text may change with a new version of clap_complete.
    #[test]
    fn every_source_of_a_key_is_completed_by_the_function() {
        for (shell, call) in [
            (Shell::Bash, "complete -F _pgseal_source -o"),
            (Shell::Zsh, ":PROVIDER:_pgseal_source' "),
            (Shell::Fish, "-a \"(__fish_pgseal_source)\""),
        ] {
            let script = script(shell);
            let needed = if shell == Shell::Bash { 2 } else { 20 };
            assert!(script.matches(call).count() >= needed, "{shell}");
            assert!(script.contains("_pgseal_source"), "{shell}");
            assert!(shell == Shell::Bash || !script.contains("passphrase\\:)'"), "{shell}");
            assert!(shell == Shell::Bash || !script.contains("passphrase:\\t"), "{shell}");
        }
    }
}
