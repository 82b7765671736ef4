//! The exit codes of `pgseal`, all in one place. The table is in docs/reference.md.

use std::io::ErrorKind;
use std::process::ExitCode;

use pgseal_convert::ConvertError;
use pgseal_core::SealError;
use pgseal_tls::TlsError;

use crate::error::CliError;

/// Done, and everything is sound.
pub const SOUND: u8 = 0;
/// `verify` found damage, or `tls check` found a weakness.
pub const DAMAGE: u8 = 1;
/// The command line is wrong. The same code as clap's.
pub const USAGE: u8 = 2;
/// Not a data directory, or no such file.
pub const NOT_FOUND: u8 = 3;
/// The data directory or file is not sealed.
pub const NOT_SEALED: u8 = 4;
/// Something is sealed already, or exists.
pub const EXISTS: u8 = 5;
/// The files name another keyring.
pub const OTHER_KEYRING: u8 = 15;
/// The library, the guard module or a program was not found.
pub const NO_LIBRARY: u8 = 20;
/// The settings do not allow sealing.
pub const SETTINGS: u8 = 21;
/// The state of the data directory does not allow it: a server runs, no room, a conversion is
/// unfinished.
pub const NOT_NOW: u8 = 22;
/// The audit trail is required and cannot be written.
pub const NOT_RECORDED: u8 = 23;
/// An error of the operating system.
pub const IO: u8 = 40;
/// Stopped by a signal, as a shell counts SIGINT.
pub const INTERRUPTED: u8 = 130;
/// A bug in pgseal.
pub const BUG: u8 = 70;

/// The exit code of an error.
pub fn code_of(error: &CliError) -> u8 {
    match error {
        CliError::Usage(_) => USAGE,
        CliError::NoSuchFile { .. } | CliError::NoPolicy { .. } | CliError::NotDataDir { .. } => {
            NOT_FOUND
        }
        CliError::NotSealed { .. } => NOT_SEALED,
        CliError::Exists { .. } => EXISTS,
        CliError::Key(error) => error.exit_code(),
        CliError::NoLibrary(_) | CliError::NoCommand { .. } | CliError::NoLab { .. } => NO_LIBRARY,
        CliError::Settings(_) => SETTINGS,
        CliError::Unfinished { .. } | CliError::NotNow(_) => NOT_NOW,
        CliError::Audit { .. } => NOT_RECORDED,
        CliError::Convert(ConvertError::Stopped) => INTERRUPTED,
        CliError::Damaged(_) | CliError::Convert(ConvertError::Journal { .. }) => DAMAGE,
        CliError::Convert(_) => NOT_NOW,
        CliError::Io { .. } | CliError::Output(_) => IO,
        CliError::Tls(error) => code_of_tls(error),
        CliError::Sealed { source, .. } => code_of_seal(source),
    }
}

fn code_of_tls(error: &TlsError) -> u8 {
    match error {
        TlsError::Conninfo(_) | TlsError::Certificate(_) => USAGE,
        TlsError::Io { source, .. } if source.kind() == ErrorKind::NotFound => NOT_FOUND,
        TlsError::Io { .. } | TlsError::Unreachable { .. } | TlsError::NotPostgres { .. } => IO,
        TlsError::Content { .. } | TlsError::Program { .. } | TlsError::Settings(_) => SETTINGS,
    }
}

fn code_of_seal(error: &SealError) -> u8 {
    match error {
        SealError::BlockDamaged(_) | SealError::BlockOlder(_) | SealError::Header(_) => DAMAGE,
        SealError::KeyUnknown { .. } => OTHER_KEYRING,
        SealError::TooLarge => USAGE,
        SealError::Io(_) => IO,
        _ => BUG,
    }
}

/// Prints the error, if there is one, and turns it into the exit status.
pub fn finish(result: Result<u8, CliError>) -> ExitCode {
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            crate::out::complain(&error.to_string());
            ExitCode::from(code_of(&error))
        }
    }
}
