//! `--register`: writes the file of a cluster in `/etc/pgseal/clusters.d`, or says what to write
//! there.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use pgseal_core::KeyringId;
use pgseal_keys::{Clusters, KeyError, Keyring, Line, Provider};

use crate::error::CliError;
use crate::{as_owner, library};

/// A registration that is written when the identity of the keyring is known.
pub struct Registration {
    provider: Provider,
    line: Line,
    group: Option<u32>,
    /// A process that stays root and writes the file, if root is about to step down.
    child: Option<Child>,
}

impl Registration {
    /// Prepares it, before the command changes anything and before root becomes the owner of `dir`.
    /// If the file cannot be written, that is an error now.
    ///
    /// # Errors
    /// When the directory of the files cannot be written.
    pub fn begin(provider: &Provider, line: Line, dir: &Path) -> Result<Registration, CliError> {
        let mut group = fs::metadata(dir).ok().map(|meta| meta.gid());
        let mut child = None;
        Clusters::from_environment().expect_writable()?;
        if dir.exists()
            && let Some(owner) = as_owner::other_owner(dir)?
        {
            group = Some(owner.gid);
            let program = library::program()?;
            let mut command = Command::new(&program);
            command.args(["helper", "register", "--provider"]).arg(provider.to_string());
            if line == Line::Another {
                command.arg("--another");
            }
            command.arg("--group").arg(owner.gid.to_string()).stdin(Stdio::piped());
            let started = command.spawn().map_err(CliError::io(&program, "start the helper"))?;
            child = Some(started);
        }
        Ok(Registration { provider: provider.clone(), line, group, child })
    }

    /// Writes the file of the cluster with this keyring, and returns its path.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(self, id: KeyringId) -> Result<PathBuf, CliError> {
        let clusters = Clusters::from_environment();
        let Some(mut child) = self.child else {
            return Ok(clusters.register(id, &self.provider, self.line, self.group)?);
        };
        let path = clusters.file_of(id);
        let failed = |source| CliError::Io {
            path: path.clone(),
            action: "have the file of the cluster written",
            source,
        };
        if let Some(mut stdin) = child.stdin.take() {
            writeln!(stdin, "{id}").map_err(failed)?;
        }
        let status = child.wait().map_err(failed)?;
        match status.success() {
            true => Ok(path),
            false => Err(failed(io::Error::other("see the message above"))),
        }
    }
}

/// `pgseal helper register`: the identity comes on standard input, from a process that has stepped
/// down, and is nothing but 32 hexadecimal digits.
///
/// # Errors
/// When the input is something else, or the file cannot be written. Empty input is no error: the
/// other process has given up.
pub fn serve(provider: &str, line: Line, group: Option<u32>) -> Result<(), CliError> {
    let provider = Provider::parse(provider)?;
    let mut id = String::new();
    let read = io::Read::take(io::stdin().lock(), 64);
    io::BufRead::read_line(&mut io::BufReader::new(read), &mut id)?;
    if id.is_empty() {
        return Ok(());
    }
    let id = parse_id(id.trim_end()).ok_or_else(|| {
        CliError::Usage("standard input: that is not the identity of a keyring".to_owned())
    })?;
    Clusters::from_environment().register(id, &provider, line, group)?;
    Ok(())
}

/// The identity of a keyring from its 32 hexadecimal digits.
pub fn parse_id(text: &str) -> Option<KeyringId> {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if text.len() != 32 || !text.bytes().all(is_hex) {
        return None;
    }
    u128::from_str_radix(text, 16).ok().map(|number| KeyringId(number.to_be_bytes()))
}

/// The file of the cluster with this keyring, and the providers that it names.
fn registered(keyring: &Keyring) -> (PathBuf, Result<Vec<Provider>, KeyError>) {
    let clusters = Clusters::from_environment();
    let registered = clusters.providers_of(keyring.id(), keyring.datadir());
    (clusters.file_of(keyring.id()), registered)
}

/// Whether the keyring alone may name this provider: never that of sealed columns, which a setting
/// names.
fn may_name(keyring: &Keyring, provider: &Provider) -> bool {
    keyring.datadir().is_some() && provider.is_harmless()
}

/// What the user has to do so that this cluster's key is found again, if anything: lines to print.
pub fn advice(keyring: &Keyring, provider: &Provider) -> Vec<String> {
    let (file, registered) = registered(keyring);
    let is_needed = match registered.as_deref() {
        Ok([]) => !may_name(keyring, provider),
        Ok([first, ..]) => first != provider,
        Err(_) => true,
    };
    if !is_needed {
        return Vec::new();
    }
    vec![
        "The source of the key has to be named outside of the data directory: write this line into"
            .to_owned(),
        format!("{} as root:", file.display()),
        format!("    provider = {provider}"),
        match keyring.datadir() {
            Some(_) => "or have it written: pgseal env -D DIR --register -K PROVIDER".to_owned(),
            None => {
                let path = keyring.path().display();
                format!("or have it written: pgseal key rotate {path} --register -K PROVIDER")
            }
        },
    ]
}

/// Fails if no file names the keyring's own source yet. With a line for a recipient alone, a start
/// would not ask that source any more.
///
/// # Errors
/// [`CliError::Usage`]; errors of the file.
pub fn expect_registered(keyring: &Keyring) -> Result<(), CliError> {
    let (file, registered) = registered(keyring);
    match registered?.is_empty() {
        false => Ok(()),
        true => Err(CliError::Usage(format!(
            "--register: {} is not there, and with the new source alone in it the keyring's own \
             source would not be asked; first have that one written: pgseal env -D DIR --register \
             -K {}",
            file.display(),
            Provider::shown(keyring.provider_uri())
        ))),
    }
}

/// As [`advice`], after a recipient with this provider was added.
pub fn advice_on_another(keyring: &Keyring, provider: &Provider) -> Vec<String> {
    let (file, registered) = registered(keyring);
    let registered = registered.unwrap_or_default();
    if registered.contains(provider) || (registered.is_empty() && may_name(keyring, provider)) {
        return Vec::new();
    }
    let mut lines = vec![
        "A start asks only the sources that are named outside of the data directory. To have this \
         one asked, write into"
            .to_owned(),
        format!("{}, behind what is there:", file.display()),
    ];
    if registered.is_empty() {
        lines.push(format!("    provider = {}", keyring.provider_uri()));
    }
    lines.push(format!("    provider = {provider}"));
    lines.push(match keyring.datadir() {
        Some(_) => {
            "or give it in an emergency: -K, or PGSEAL_PROVIDER in the server's environment."
                .to_owned()
        }
        None => "or write that line in an emergency.".to_owned(),
    });
    lines
}

/// What to do after a recipient with this provider was removed: the file may still name it.
pub fn advice_on_removed(keyring: &Keyring, uri: &str) -> Option<String> {
    let (file, registered) = registered(keyring);
    let is_named = registered.ok()?.iter().any(|known| known.to_string() == uri);
    is_named.then(|| format!("Remove the line \"provider = {uri}\" from {}.", file.display()))
}

/// The line to print instead of [`advice`], after the file was written.
pub fn done(path: &Path) -> String {
    format!("The source of the key stands in {} now.", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_read_back() {
        let id = KeyringId([0xa0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xff]);
        assert_eq!(parse_id(&id.to_string()), Some(id));
        for bad in ["", "xyz", &"A".repeat(32), &"+".repeat(32), &"a".repeat(33), "../../etc/x"] {
            assert_eq!(parse_id(bad), None, "{bad}");
        }
    }
}
