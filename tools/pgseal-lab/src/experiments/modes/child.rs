//! The parent's side of a child process.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use super::arm::Cpu;
use super::protocol::{About, Reply, Request};
use crate::context::{Context, shown};
use crate::error::LabError;

/// A running child with its set of instructions.
pub struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    command: String,
    /// What the child reported about itself, already checked.
    pub about: About,
}

impl Worker {
    /// Starts a child and checks that it uses exactly the instructions of its set.
    ///
    /// # Errors
    ///
    /// [`LabError::Io`] if the child does not start, [`LabError::Broken`] if it uses other
    /// instructions.
    pub fn start(context: &Context, cpu: Cpu, cpu_flags: &[String]) -> Result<Worker, LabError> {
        let mut command = context.child_command("modes");
        command.env_remove("OPENSSL_ia32cap").env_remove("OPENSSL_CONF");
        if let Some(mask) = cpu.ia32cap() {
            command.env("OPENSSL_ia32cap", mask);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let program = PathBuf::from(command.get_program());
        let mut child = command.spawn().map_err(LabError::io(&program, "run the program"))?;
        let shown = shown(&command);
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(LabError::Output { command: shown, wanted: "pipes".to_owned() });
        };
        let mut worker = Worker {
            child,
            input: Some(input),
            output: BufReader::new(output),
            command: shown,
            about: About::default(),
        };
        match worker.ask(&Request::About)? {
            Reply::About(about) => worker.about = about,
            other => return Err(worker.unexpected(&other)),
        }
        check(&worker.about, cpu, cpu_flags)?;
        Ok(worker)
    }

    /// Sends a request and waits for the answer.
    ///
    /// # Errors
    ///
    /// [`LabError::Program`] if the child has ended, [`LabError::Output`] if its answer cannot be
    /// parsed.
    pub fn ask(&mut self, request: &Request) -> Result<Reply, LabError> {
        let gone = |command: &str, why: String| LabError::Program {
            command: command.to_owned(),
            said: format!("the child process ended early: {why}"),
        };
        let mut line =
            serde_json::to_vec(request).map_err(|error| gone(&self.command, error.to_string()))?;
        line.push(b'\n');
        let mut answer = String::new();
        let sent = match &mut self.input {
            Some(input) => input.write_all(&line).and_then(|()| input.flush()),
            None => Ok(()),
        };
        sent.and_then(|()| self.output.read_line(&mut answer))
            .map_err(|error| gone(&self.command, error.to_string()))?;
        if answer.is_empty() {
            let status = self.child.wait().map(|status| status.to_string());
            return Err(gone(&self.command, status.unwrap_or_default()));
        }
        serde_json::from_str(&answer).map_err(|_| LabError::Output {
            command: self.command.clone(),
            wanted: format!("answer to {request:?}"),
        })
    }

    /// The error for an answer that does not fit the request.
    pub fn unexpected(&self, reply: &Reply) -> LabError {
        let said = match reply {
            Reply::Failed(why) => why.clone(),
            other => format!("{other:?}"),
        };
        LabError::Program { command: self.command.clone(), said }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The child ends when its input ends.
        self.input = None;
        let _ = self.child.wait();
    }
}

/// Compares the CPU features that the libraries report with the expected ones.
fn check(about: &About, cpu: Cpu, cpu_flags: &[String]) -> Result<(), LabError> {
    let has = |flag: &str| cpu_flags.iter().any(|known| known == flag);
    let aes = cpu != Cpu::NoAes && has("aes");
    let vaes = cpu == Cpu::All && has("vaes");
    let must = |what: &str, expected: bool, found: Option<bool>| match found {
        Some(found) if found != expected => Err(LabError::Broken {
            what: format!("child process {}: {what}", cpu.title()),
            expected: on_off(expected).to_owned(),
            found: on_off(found).to_owned(),
        }),
        _ => Ok(()),
    };
    must("AES instructions in OpenSSL", aes, about.openssl_aes)?;
    must("VAES in OpenSSL", vaes, about.openssl_vaes)?;
    must("AES instructions in AWS-LC", aes, Some(about.aws_lc_aes))
}

/// `on`, `off`.
pub fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_with_other_instructions_is_refused() {
        let flags = ["aes".to_owned(), "vaes".to_owned()];
        let about = |aes, vaes| About {
            openssl_aes: Some(aes),
            openssl_vaes: Some(vaes),
            aws_lc_aes: aes,
            ..About::default()
        };
        assert!(check(&about(true, true), Cpu::All, &flags).is_ok());
        assert!(check(&about(true, false), Cpu::NoVaes, &flags).is_ok());
        assert!(check(&about(false, false), Cpu::NoAes, &flags).is_ok());
        let text = check(&about(true, false), Cpu::NoAes, &flags).unwrap_err().to_string();
        assert!(text.contains("AES instructions in OpenSSL: expected off, found on"), "{text}");
        assert!(check(&about(true, true), Cpu::NoVaes, &flags).is_err());
        assert!(check(&about(false, false), Cpu::All, &flags).is_err(), "a mask from outside");
        assert!(check(&about(false, false), Cpu::All, &[]).is_ok(), "a CPU without them");
        let half = About { openssl_aes: Some(false), aws_lc_aes: true, ..About::default() };
        assert!(check(&half, Cpu::NoAes, &flags).is_err(), "AWS-LC must obey, too");
    }
}
