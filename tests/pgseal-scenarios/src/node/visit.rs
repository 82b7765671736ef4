//! Servers that another program starts and stops.

use std::path::Path;
use std::sync::Arc;

use super::Node;

impl Node {
    /// A server that another program runs, used with the programs of `base`. The arguments are its
    /// data directory, the directory of its socket, its port, and the password of `postgres`.
    #[must_use]
    pub fn visit(base: &Node, data: &Path, sockets: &Path, port: u16, password: &str) -> Node {
        Node {
            cluster: Arc::clone(&base.cluster),
            bindir: base.bindir.clone(),
            data: data.to_owned(),
            port,
            sockets: sockets.to_owned(),
            password: Some(password.to_owned()),
            log: data.with_extension("log"),
            server: None,
            log_start: 0,
            env: base.env.clone(),
            file_limit_kib: None,
            before_start: None,
        }
    }

    /// The directory of the server's socket.
    #[must_use]
    pub fn sockets(&self) -> &Path {
        &self.sockets
    }
}
