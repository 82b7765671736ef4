//! TCP ports.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};

use crate::error::ClusterError;

/// Reserves a TCP port of 127.0.0.1 for `port=` of one server until this process ends: a socket
/// stays bound to the port, with `SO_REUSEADDR` and not listening, so that the server can listen on
/// the port.
///
/// # Errors
/// When no port is free.
pub fn free_port() -> Result<u16, ClusterError> {
    static HELD: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());
    let held = || -> io::Result<(u16, OwnedFd)> {
        let kind = SocketType::STREAM;
        let socket = socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, None)?;
        set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        let bound = SocketAddr::try_from(getsockname(&socket)?)?;
        Ok((bound.port(), socket))
    };
    let (port, socket) =
        held().map_err(ClusterError::io(Path::new("127.0.0.1"), "find a free port"))?;
    HELD.lock().unwrap_or_else(PoisonError::into_inner).push(socket);
    Ok(port)
}
