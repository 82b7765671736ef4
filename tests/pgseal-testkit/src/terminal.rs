//! Runs a program on a terminal of its own and types answers to its prompts.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};

/// Longest wait for a prompt, and for the echo to be switched off.
const PATIENCE: Duration = Duration::from_secs(60);

/// The terminal: sends input to the program and keeps its output.
#[derive(Debug)]
pub struct Terminal {
    keyboard: File,
    child: Child,
    seen: String,
    /// How many bytes of `seen` came before the last answer.
    answered_bytes: usize,
}

impl Terminal {
    /// Starts a program with a new terminal as its controlling terminal, by util-linux's `setsid`;
    /// `prepare` sets its environment and directory.
    pub fn start(argv: &[&str], prepare: impl FnOnce(&mut Command)) -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master).expect("a terminal of ours");
        unlockpt(&master).expect("a terminal that can be opened");
        let name = ptsname(&master, Vec::new()).expect("the name of the terminal");
        let path = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
        let open = || OpenOptions::new().read(true).write(true).open(path).expect("the terminal");
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait"]).args(argv);
        command.stdin(open()).stdout(open()).stderr(open());
        prepare(&mut command);
        let child = command.spawn().expect("setsid of util-linux");
        Terminal { keyboard: master.into(), child, seen: String::new(), answered_bytes: 0 }
    }

    /// Waits for output that ends with `prompt`, then types a line.
    pub fn answer(&mut self, prompt: &str, line: &str) {
        self.wait_for(prompt);
        self.type_line(line);
    }

    /// Like [`Terminal::answer`], but waits until the terminal's echo is off, so that the line is
    /// not shown.
    pub fn answer_hidden(&mut self, prompt: &str, line: &str) {
        self.wait_for(prompt);
        let end = Instant::now() + PATIENCE;
        // The master side reports the modes of the terminal.
        while tcgetattr(&self.keyboard).expect("modes").local_modes.contains(LocalModes::ECHO) {
            assert!(Instant::now() < end, "the echo stays on after {:?}", self.seen);
            thread::sleep(Duration::from_millis(1));
        }
        self.type_line(line);
    }

    fn type_line(&mut self, line: &str) {
        self.answered_bytes = self.seen.len();
        self.keyboard.write_all(format!("{line}\n").as_bytes()).expect("typing");
    }

    /// Waits for the end of the program; returns its exit status and all its output.
    pub fn end(mut self) -> (ExitStatus, String) {
        while self.read() {}
        (self.child.wait().expect("the program"), self.seen)
    }

    fn wait_for(&mut self, prompt: &str) {
        while !self.seen[self.answered_bytes..].trim_end_matches(' ').ends_with(prompt) {
            assert!(self.read(), "the program ended, no {prompt:?} in {:?}", self.seen);
        }
    }

    /// Reads more output; `false` at the end: reading fails once no process has the terminal open.
    fn read(&mut self) -> bool {
        let wait = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        let mut ready = [PollFd::new(&self.keyboard, PollFlags::IN)];
        let count = poll(&mut ready, Some(&wait)).expect("waiting");
        assert!(count > 0, "nothing more is shown after {:?}", self.seen);
        let mut chunk = [0; 4096];
        match self.keyboard.read(&mut chunk) {
            Ok(0) | Err(_) => false,
            Ok(len) => {
                self.seen.push_str(&String::from_utf8_lossy(&chunk[..len]));
                true
            }
        }
    }
}
