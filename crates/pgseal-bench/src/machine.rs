//! What the figures were measured on.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::Serialize;

use pgseal_lab::cluster::Tools;
use pgseal_lab::context::output_of;

/// The machine, the system and the versions.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// Model of the first CPU.
    pub cpu: String,
    /// CPUs that are online.
    pub cpus: usize,
    /// The flags that decide how fast AES is: those of AES, carry-less multiplication and vectors.
    pub cpu_flags: Vec<String>,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// `uname -srm`.
    pub kernel: String,
    /// Type and mount options of the file system under the clusters.
    pub file_system: String,
    /// `postgres --version`.
    pub postgresql: String,
    /// `pgseal --version`.
    pub pgseal: String,
    /// Load of the last minute before the start; above 1 the figures are worth little.
    pub load_before: String,
    /// Seconds since 1970 at the start.
    pub started_unix_s: u64,
}

impl Machine {
    /// Looks at this machine; what cannot be found out is empty.
    pub fn look(tools: &Tools, root: &Path) -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let flags = field("flags").or_else(|| field("Features")).unwrap_or_default();
        let wanted = |flag: &&str| {
            flag.contains("aes")
                || flag.contains("clmul")
                || flag.contains("pmull")
                || flag.starts_with("avx")
                || *flag == "hypervisor"
        };
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kib = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kib = kib.and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<u64>().ok());
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            cpu: field("model name").unwrap_or_default(),
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            cpu_flags: flags.split(' ').filter(wanted).map(str::to_owned).collect(),
            memory_bytes: kib.unwrap_or(0) * 1024,
            kernel: first_line(Command::new("uname").arg("-srm")),
            file_system: first_line(
                Command::new("findmnt").args(["-n", "-o", "FSTYPE,OPTIONS", "-T"]).arg(root),
            ),
            postgresql: first_line(Command::new(tools.bindir.join("postgres")).arg("--version")),
            pgseal: first_line(Command::new(&tools.pgseal).arg("--version")),
            load_before: load.split(' ').next().unwrap_or_default().to_owned(),
            started_unix_s: since_1970.map_or(0, |since| since.as_secs()),
        }
    }
}

fn first_line(command: &mut Command) -> String {
    let text = output_of(command).unwrap_or_default();
    text.lines().next().unwrap_or_default().trim().to_owned()
}
