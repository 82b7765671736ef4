//! A KMIP server (PyKMIP) for scenarios, made and started by the commands of docs/key-stores.md.

use std::env;
use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;

use pgseal_cluster::{Patience, free_port};

use crate::key_store::{StoreNode, commands};
use crate::outcome::{Outcome, succeeds};

/// Where `scripts/setup.sh test` puts servers that are written in Python, with `python3` for their
/// client.
///
/// # Panics
/// When they are not there.
#[must_use]
pub fn python_servers() -> PathBuf {
    let dir = env::var_os("PGSEAL_KEY_STORES")
        .map_or_else(|| PathBuf::from("/var/cache/pgseal/key-stores"), PathBuf::from);
    let bin = dir.join("bin");
    assert!(bin.join("pykmip-server").exists(), "{}: run scripts/setup.sh test", bin.display());
    bin
}

/// The server, in the home directory of a node.
#[derive(Debug)]
pub struct KmipServer {
    port: u16,
    home: PathBuf,
}

impl KmipServer {
    /// Makes certificates, a policy and a key, and starts the server.
    ///
    /// # Panics
    /// With what a command said, when it fails.
    #[must_use]
    pub fn new(base: &StoreNode) -> KmipServer {
        let server =
            KmipServer { port: free_port().expect("a port"), home: base.node.home().join("kmip") };
        let (files, start) = KmipServer::first_block();
        succeeds(&server.script(base, &files));
        server.start(base, &start);
        succeeds(&server.script(base, &commands("## KMIP", "### A new KMIP key")[1]));
        server
    }

    /// The commands that make the files, and the one that starts the server.
    fn first_block() -> (String, String) {
        let block = commands("## KMIP", "### A new KMIP key").swap_remove(0);
        let at = block.find("setsid pykmip-server").expect("the start of the server");
        let (files, start) = block.split_at(at);
        (files.to_owned(), start.to_owned())
    }

    /// Runs a script of the page: the server has another port, and its client is not in `PATH`.
    #[must_use]
    pub fn script(&self, base: &StoreNode, text: &str) -> Outcome {
        let path = format!("PATH={}:$PATH", python_servers().display());
        let text = text.replace("127.0.0.1:5696", &self.address());
        let text = text.replace("\"127.0.0.1\", 5696", &format!("\"127.0.0.1\", {}", self.port));
        let text = text.replace("port=5696", &format!("port={}", self.port));
        base.script(&format!("{path}\n{text}"))
    }

    /// Lines of Python in a connection of the administrator, `store`.
    ///
    /// # Panics
    /// With what Python said, when it fails.
    #[track_caller]
    pub fn administrator(&self, base: &StoreNode, line: &str) {
        let text = format!(
            "cd ~/kmip; python3 -c '
from kmip.core.enums import RevocationReasonCode
from kmip.pie.client import ProxyKmipClient
with ProxyKmipClient(\"127.0.0.1\", 5696, \"admin.pem\", \"admin.key\", \"ca.pem\") as store:
    {line}'"
        );
        succeeds(&self.script(base, &text));
    }

    /// `127.0.0.1:PORT`
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The attributes behind the `?` of a URI.
    #[must_use]
    pub fn query(&self) -> String {
        let home = self.home.display();
        format!(
            "address={}&ca-file={home}/ca.pem&cert-file={home}/db.pem&cert-key-file={home}/db.key",
            self.address()
        )
    }

    fn listens(&self) -> bool {
        TcpStream::connect(("127.0.0.1", self.port)).is_ok()
    }

    fn start(&self, base: &StoreNode, command: &str) {
        let loaded = || {
            let log = fs::read_to_string(self.home.join("log")).unwrap_or_default();
            log.matches("Loading policy: pgseal").count()
        };
        let before = loaded();
        succeeds(&self.script(base, &format!("{command}echo $! >~/kmip/pid")));
        assert!(Patience::seconds(60).wait_until(|| self.listens()), "the store does not listen");
        // PyKMIP reads its policies a second after it listens, if the test has left it any.
        let _ = Patience::seconds(20).wait_until(|| loaded() > before);
    }

    /// Starts the server again, with what it kept.
    ///
    /// # Panics
    /// When it does not start.
    pub fn up(&self, base: &StoreNode) {
        self.start(base, &KmipServer::first_block().1);
    }

    /// The script that starts the server again, for a process of its own.
    #[must_use]
    pub fn start_script(&self) -> String {
        let path = format!("PATH={}:$PATH", python_servers().display());
        format!("{path}\n{}echo $! >~/kmip/pid", KmipServer::first_block().1)
    }

    /// Sends a signal to the server and its children.
    ///
    /// # Panics
    /// When there is no server.
    #[track_caller]
    pub fn signal(&self, base: &StoreNode, name: &str) {
        succeeds(&base.script(&format!("kill -{name} -- -$(cat ~/kmip/pid)")));
    }

    /// Kills the server.
    ///
    /// # Panics
    /// When it stays.
    #[track_caller]
    pub fn down(&self, base: &StoreNode) {
        self.signal(base, "KILL");
        assert!(Patience::seconds(60).wait_until(|| !self.listens()), "the store still listens");
    }
}

impl Drop for KmipServer {
    fn drop(&mut self) {
        let Ok(pid) = fs::read_to_string(self.home.join("pid")) else { return };
        let Some(pid) = pid.trim().parse().ok().and_then(rustix::process::Pid::from_raw) else {
            return;
        };
        // It may have been killed by the test.
        let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
    }
}
