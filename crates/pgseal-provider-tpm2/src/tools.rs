//! The programs of tpm2-tools: where they are, what they get, and what their failures mean.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use pgseal_plugin::files::{self, Readers};
use pgseal_plugin::{Failure, Fault, configuration};
use zeroize::Zeroizing;

use crate::child::{self, Lost};
use crate::codes::{self, Code};
use crate::lock::{self, Lock};
use crate::tcti::{self, Tcti};
use crate::uri::Uri;

/// The longest time that all programs of one request may take. pgseal stops a plugin after 15 s.
const LIMIT: Duration = Duration::from_secs(10);
/// The longest file with an authorization value, in bytes.
const MAX_AUTH_LEN: usize = 256;
/// The longest message of a program that is shown, in characters.
const MAX_SAID_LEN: usize = 160;
/// A program that is there if tpm2-tools are.
const FIRST: &str = "tpm2_unseal";

/// The programs, for one request.
pub(crate) struct Tools {
    dir: PathBuf,
    tcti: Tcti,
    owner_auth: Option<PathBuf>,
    deadline: Instant,
    /// Held where no resource manager keeps the objects of two requests apart.
    alone: Option<Lock>,
}

/// A program that reported an error.
pub(crate) struct Refusal {
    tool: &'static str,
    said: String,
    /// The response code, if the TPM or the way to it is the reason.
    pub code: Option<Code>,
}

/// What a program leaves in the TPM when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// A loaded object.
    Object,
    /// A session.
    Session,
}

/// Why a program has no result.
pub(crate) enum Error {
    /// It could not be run.
    NotRun(Failure<'static>),
    /// It reported an error.
    Refused(Refusal),
}

impl Tools {
    /// The programs that the URI names, and the TPM.
    pub(crate) fn open(uri: &Uri) -> Result<Tools, Failure<'static>> {
        let deadline = Instant::now() + LIMIT;
        let tcti = match &uri.tcti {
            Some(tcti) => tcti.clone(),
            None => Tcti::usual()?,
        };
        if let Some(path) = &uri.owner_auth {
            // The programs read it themselves; here it is only checked.
            files::content("owner-auth-file", path, Readers::Owner, MAX_AUTH_LEN)?;
        }
        let owner_auth = uri.owner_auth.clone();
        let mut tools = Tools { dir: uri.tools.clone(), tcti, owner_auth, deadline, alone: None };
        tools.program(FIRST)?;
        tools.tcti.expect_there()?;
        if !tools.tcti.has_manager() {
            tools.alone = Some(tools.hold()?);
        }
        Ok(tools)
    }

    /// The way to the TPM.
    pub(crate) fn tcti(&self) -> &Tcti {
        &self.tcti
    }

    /// Keeps the other processes of this plugin out of a step that reads, compares and writes.
    pub(crate) fn lock(&self) -> Result<Option<Lock>, Failure<'static>> {
        match self.alone {
            Some(_) => Ok(None),
            None => self.hold().map(Some),
        }
    }

    fn hold(&self) -> Result<Lock, Failure<'static>> {
        let place = match self.tcti.place() {
            // A simulator that is away has no directory. The first program says so.
            Some(place) if place.exists() => place.to_owned(),
            _ => self.program(FIRST)?,
        };
        lock::hold(&place, self.deadline.checked_sub(LIMIT / 2).unwrap_or(self.deadline))
    }

    /// The options for the authorization of the owner hierarchy: `-C o`, and a file with its value.
    pub(crate) fn owner(&self) -> Vec<String> {
        let mut options = vec!["-C".to_owned(), "o".to_owned()];
        if let Some(path) = &self.owner_auth {
            options.extend(["-P".to_owned(), format!("file:{}", path.display())]);
        }
        options
    }

    /// Runs a program with this standard input, and returns its standard output.
    pub(crate) fn run<S: AsRef<str>>(
        &self,
        tool: &'static str,
        arguments: &[S],
        input: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, Error> {
        let result = self.run_only(tool, arguments, input);
        if matches!(result, Err(Error::Refused(_))) {
            // A program that fails leaves its session.
            self.flush(Left::Session);
        }
        result
    }

    /// Runs a program without input that leaves something in the TPM. What it leaves is taken out;
    /// of an object, the program has saved the context in a file.
    pub(crate) fn run_and_flush<S: AsRef<str>>(
        &self,
        tool: &'static str,
        arguments: &[S],
        left: Left,
    ) -> Result<Zeroizing<Vec<u8>>, Error> {
        let result = self.run(tool, arguments, b"");
        self.flush(left);
        result
    }

    /// A TPM has room for three objects and three sessions. A resource manager takes them out
    /// itself.
    fn flush(&self, left: Left) {
        if self.alone.is_some() {
            let which = match left {
                Left::Object => "-t",
                Left::Session => "-l",
            };
            // If this fails, the next request finds less room, and does it then.
            let _ = self.run_only("tpm2_flushcontext", &["-Q", which], b"");
        }
    }

    fn run_only<S: AsRef<str>>(
        &self,
        tool: &'static str,
        arguments: &[S],
        input: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, Error> {
        let program = self.program(tool).map_err(Error::NotRun)?;
        let mut command = Command::new(program);
        command.args(arguments.iter().map(AsRef::as_ref)).current_dir("/");
        command.env_clear().env("LC_ALL", "C").env(tcti::VARIABLE, self.tcti.as_str());
        let unavailable = |what: String| {
            Error::NotRun(Failure::new(Fault::Unavailable, format!("{tool}: {what}")))
        };
        let output = child::run(&mut command, input, self.deadline).map_err(|lost| match lost {
            Lost::TooSlow => {
                unavailable(format!("the TPM gives no answer within {} s", LIMIT.as_secs()))
            }
            Lost::Io(error) => unavailable(error.to_string()),
        })?;
        match output.status.success() {
            true => Ok(output.text),
            false => Err(Error::Refused(Refusal {
                tool,
                said: said(&output.log).unwrap_or_else(|| output.status.to_string()),
                code: Code::in_log(&output.log),
            })),
        }
    }

    /// The path of a program, whose file and directories nobody else can write.
    fn program(&self, tool: &str) -> Result<PathBuf, Failure<'static>> {
        let path = self.dir.join(tool);
        if !path.exists() {
            return Err(configuration(format!(
                "{}: there is no such program; install tpm2-tools (apt-get install tpm2-tools), or \
                 name its directory with tools=/PATH",
                path.display()
            )));
        }
        // The program may be a link: what it leads to is checked, and the place of the link.
        files::expect_trusted("tools", &path)?;
        files::expect_trusted("tools", path.parent().unwrap_or(Path::new("/")))?;
        Ok(path)
    }
}

impl Refusal {
    /// The failure, where a code that says nothing else means `otherwise`.
    pub(crate) fn failure(self, otherwise: (Fault, &str)) -> Failure<'static> {
        let (fault, words) = self.code.and_then(Code::fault).unwrap_or(otherwise);
        Failure::new(fault, format!("{words} ({}: {})", self.tool, self.said))
    }
}

impl Error {
    /// The failure, where a code that says nothing else means `otherwise`.
    pub(crate) fn failure(self, otherwise: (Fault, &str)) -> Failure<'static> {
        match self {
            Error::NotRun(failure) => failure,
            Error::Refused(refusal) => refusal.failure(otherwise),
        }
    }

    /// The failure of a program whose input this plugin made.
    pub(crate) fn failed(self) -> Failure<'static> {
        let otherwise = match self.code() {
            // Only without a resource manager.
            Some(codes::HANDLE) => {
                (Fault::Unavailable, "another program took an object out of the TPM meanwhile")
            }
            _ => (Fault::Configuration, "the TPM, or its tools, cannot do this"),
        };
        self.failure(otherwise)
    }

    /// The response code.
    pub(crate) fn code(&self) -> Option<Code> {
        match self {
            Error::NotRun(_) => None,
            Error::Refused(refusal) => refusal.code,
        }
    }
}

/// The line of a program that says most: its first own error, else the first line of the stack.
fn said(log: &str) -> Option<String> {
    let own = log.lines().find_map(|line| line.strip_prefix("ERROR: "));
    let own = own.filter(|line| !line.starts_with("Could not load tcti"));
    let line = own.or_else(|| log.lines().next())?.trim();
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    Some(line.chars().take(MAX_SAID_LEN).map(printable).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_line_that_says_most() {
        for (log, line) in [
            (
                "WARNING:esys:x\nERROR: Esys_Load(0x1DF) - bad\nERROR: Unable",
                "Esys_Load(0x1DF) - bad",
            ),
            ("WARNING:tcti: no host\nERROR: Could not load tcti, got", "WARNING:tcti: no host"),
            ("a\u{1b}b", "a b"),
        ] {
            assert_eq!(said(log).as_deref(), Some(line));
        }
        assert_eq!(said(""), None);
        assert_eq!(said(&"x".repeat(500)).unwrap().len(), MAX_SAID_LEN);
    }

    #[test]
    fn a_refusal_has_the_fault_of_its_code() {
        let refusal = |log: &str| Refusal {
            tool: "tpm2_load",
            said: "why".to_owned(),
            code: Code::in_log(log),
        };
        for (log, fault) in [
            ("(0x902)", Fault::Unavailable),
            ("(0x9a2)", Fault::Refused),
            ("(0x1df)", Fault::Wrong),
            ("a broken blob", Fault::Wrong),
        ] {
            let failure = refusal(log).failure((Fault::Wrong, "not opened"));
            assert_eq!(failure.kind, fault, "{log}");
            assert!(failure.message.ends_with("(tpm2_load: why)"), "{}", failure.message);
        }
    }

    #[test]
    fn tools_that_are_not_there_or_not_to_be_trusted() {
        let open = |tools: &str| {
            let uri = format!("tpm2:parent=owner?tools={tools}&tcti=swtpm:host=127.0.0.1,port=1");
            Tools::open(&Uri::parse(&uri).unwrap()).err().unwrap()
        };
        let missing = open("/nonexistent");
        assert_eq!(missing.kind, Fault::Configuration);
        assert!(missing.message.contains("apt-get install tpm2-tools"), "{}", missing.message);
        let dir = crate::scratch::Scratch::new().unwrap();
        std::fs::write(dir.file(FIRST), "").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(dir.file(FIRST), mode).unwrap();
        let open_to_all = open(&dir.file(""));
        assert_eq!(open_to_all.kind, Fault::Configuration);
        assert!(open_to_all.message.contains("group or others can write it"));
    }
}
