//! A program on a terminal of its own, and somebody who types.

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

/// The terminal: what is typed goes to the program, what it shows is kept.
#[derive(Debug)]
pub struct Terminal {
    keyboard: File,
    child: Child,
    seen: String,
    /// Bytes of `seen` before the last answer.
    answered_bytes: usize,
}

impl Terminal {
    /// Starts a program with a new terminal as its controlling one, by util-linux's `setsid`;
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

    /// Types a line in answer to a prompt that ends so.
    pub fn answer(&mut self, prompt: &str, line: &str) {
        self.wait_for(prompt);
        self.type_line(line);
    }

    /// The same, typed once the terminal echoes no more: what is typed before is shown.
    pub fn answer_hidden(&mut self, prompt: &str, line: &str) {
        self.wait_for(prompt);
        let end = Instant::now() + PATIENCE;
        // The master's modes are those of the terminal.
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

    /// All that was shown, once the program has ended, and how it ended.
    pub fn end(mut self) -> (ExitStatus, String) {
        while self.read() {}
        (self.child.wait().expect("the program"), self.seen)
    }

    fn wait_for(&mut self, prompt: &str) {
        while !self.seen[self.answered_bytes..].trim_end_matches(' ').ends_with(prompt) {
            assert!(self.read(), "the program ended, no {prompt:?} in {:?}", self.seen);
        }
    }

    /// Whether there was more to read: a terminal that nobody has open any more gives an error.
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
