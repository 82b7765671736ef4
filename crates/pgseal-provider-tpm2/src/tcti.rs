//! The way to the TPM, in the words of the TPM Software Stack: a TCTI (TPM Command Transmission
//! Interface), `NAME:CONFIGURATION`.

use std::env;
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

use pgseal_plugin::{Failure, Fault, configuration};

/// The variable from which tpm2-tools take the TCTI.
pub(crate) const VARIABLE: &str = "TPM2TOOLS_TCTI";
/// The kernel's resource manager.
const DEFAULT: &str = "device:/dev/tpmrm0";
/// The TCTIs that connect. Others load a library or run a command that their name gives.
const NAMES: [&str; 4] = ["device", "swtpm", "mssim", "tabrmd"];
const MAX_LEN: usize = 256;

/// A TCTI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tcti(String);

impl Tcti {
    /// A TCTI from the attribute or environment variable `name`.
    pub(crate) fn parse(name: &str, text: &str) -> Result<Tcti, Failure<'static>> {
        let (kind, _) = text.split_once(':').unwrap_or((text, ""));
        let is_plain = text.len() <= MAX_LEN && text.bytes().all(|byte| byte.is_ascii_graphic());
        match is_plain && NAMES.contains(&kind) {
            true => Ok(Tcti(text.to_owned())),
            false => Err(configuration(format!(
                "{name}: give device:/dev/tpmrm0, tabrmd:..., swtpm:... or mssim:..."
            ))),
        }
    }

    /// That of the environment, or the kernel's resource manager.
    pub(crate) fn usual() -> Result<Tcti, Failure<'static>> {
        match env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
            None => Ok(Tcti(DEFAULT.to_owned())),
            Some(value) => Tcti::parse(VARIABLE, value.to_str().unwrap_or_default()),
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The file of the device.
    pub(crate) fn device(&self) -> Option<&Path> {
        let path = self.0.strip_prefix("device:").map(Path::new)?;
        path.is_absolute().then_some(path)
    }

    /// The device of the kernel's resource manager.
    fn managed_device(&self) -> Option<&Path> {
        let is_managed = |path: &&Path| {
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"tpmrm"))
        };
        self.device().filter(is_managed)
    }

    /// A file or directory of this TPM alone, for a lock: the device of the resource manager, which
    /// only those can open who may use the TPM, or the directory of a simulator's socket.
    /// (`/dev/tpm0` can be open only once.)
    pub(crate) fn place(&self) -> Option<&Path> {
        let socket = || self.0.split_once(":path=").map(|(_, path)| Path::new(path));
        let socket_dir = || socket().filter(|path| path.is_absolute()).and_then(Path::parent);
        self.managed_device().or_else(socket_dir)
    }

    /// Whether a resource manager stands between the programs and the TPM: it gives each connection
    /// its own objects, and takes them out of the TPM when the connection ends.
    pub(crate) fn has_manager(&self) -> bool {
        self.managed_device().is_some() || self.0.starts_with("tabrmd")
    }

    /// Fails if the device is not there, or this user may not use it.
    pub(crate) fn expect_there(&self) -> Result<(), Failure<'static>> {
        let Some(path) = self.device() else { return Ok(()) };
        let Err(error) = File::options().read(true).write(true).open(path) else { return Ok(()) };
        let path = path.display();
        let (kind, what) = match error.kind() {
            ErrorKind::NotFound => (
                Fault::Unavailable,
                format!("{path}: there is no TPM; is it switched on in the firmware?"),
            ),
            ErrorKind::PermissionDenied => (
                Fault::Refused,
                format!(
                    "{path}: this user may not use the TPM; add it to the group of the device \
                     (usermod -aG tss postgres), and start its services again"
                ),
            ),
            _ => (Fault::Unavailable, format!("{path}: {error}")),
        };
        Err(Failure::new(kind, what))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn only_what_connects_is_a_way_to_the_tpm() {
        for (text, device, place, has_manager) in [
            ("device:/dev/tpmrm0", Some("/dev/tpmrm0"), Some("/dev/tpmrm0"), true),
            ("device:/dev/tpm0", Some("/dev/tpm0"), None, false),
            ("device", None, None, false),
            ("tabrmd:bus_type=session", None, None, true),
            ("swtpm:host=127.0.0.1,port=2321", None, None, false),
            ("swtpm:path=/run/tpm/socket", None, Some("/run/tpm"), false),
            ("swtpm:path=socket", None, None, false),
            ("mssim", None, None, false),
        ] {
            let tcti = Tcti::parse("tcti", text).unwrap();
            assert_eq!(tcti.device(), device.map(Path::new), "{text}");
            assert_eq!(tcti.place(), place.map(Path::new), "{text}");
            assert_eq!(tcti.has_manager(), has_manager, "{text}");
        }
        for bad in ["", "cmd:sh", "libtss2-tcti-x.so", "/x.so", "none", "device:/dev/tpm 0"] {
            assert!(Tcti::parse("tcti", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_machine_without_a_tpm_may_get_one() {
        let gone = Tcti::parse("tcti", "device:/nonexistent/tpmrm0").unwrap();
        assert_eq!(gone.expect_there().unwrap_err().kind, Fault::Unavailable);
    }
}
