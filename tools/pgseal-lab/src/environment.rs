//! The machine on which the figures were measured.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::quiet::QUIET_CPUS;
use crate::warning::Warning;

/// The machine, the system and the versions. Unknown fields are empty.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Model of the first CPU.
    pub cpu_model: String,
    /// The flags in `/proc/cpuinfo` that matter for the speed of cryptography.
    pub cpu_flags: Vec<String>,
    /// CPUs that are online and that this process may use.
    pub cpus: u32,
    /// The evidence that the CPU is virtual; none: there is no evidence.
    pub virtual_cpu: Option<String>,
    /// The frequency governor of the first CPU.
    pub governor: Option<String>,
    /// Clock of the first CPU in MHz before the first step, as the kernel reports it.
    pub frequency_mhz: Option<f64>,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// `uname -srm`.
    pub kernel: String,
    /// Name and version of the distribution.
    pub distribution: String,
    /// Type and mount options of the file system under the working directory.
    pub file_system: String,
    /// `postgres --version` of the servers used.
    pub postgresql: Vec<String>,
    /// `openssl version`, the system's.
    pub openssl: Option<String>,
    /// Version of pgseal.
    pub pgseal: String,
    /// Load average of the last minute before the first step.
    pub load_before: f64,
    /// CPUs that other programs used before the first step, while the lab did nothing; none: not
    /// known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others_before: Option<f64>,
    /// When this was recorded, in seconds since 1970.
    pub time_unix_s: u64,
}

impl Environment {
    /// Reads the properties of this machine, of the file system of `work_dir`, and of the
    /// PostgreSQL in `bindir` if there is one.
    pub fn look(work_dir: &Path, bindir: Option<&Path>) -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let flags =
            cpuinfo_field(&cpuinfo, "flags").or_else(|| cpuinfo_field(&cpuinfo, "Features"));
        let flags = flags.unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let os_release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let policy = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
        Self {
            cpu_model: cpuinfo_field(&cpuinfo, "model name").unwrap_or_default().to_owned(),
            cpu_flags: flags.split(' ').filter(matters).map(str::to_owned).collect(),
            cpus: std::thread::available_parallelism().map_or(0, |n| n.get() as u32),
            virtual_cpu: virtual_cpu(flags),
            governor: fs::read_to_string(policy).ok().map(|text| text.trim().to_owned()),
            frequency_mhz: cpuinfo_field(&cpuinfo, "cpu MHz").and_then(|mhz| mhz.parse().ok()),
            memory_bytes: memory_bytes(&meminfo).unwrap_or(0),
            kernel: first_line(Command::new("uname").arg("-srm")).unwrap_or_default(),
            distribution: distribution(&os_release).unwrap_or_default(),
            file_system: first_line(
                Command::new("findmnt").args(["-n", "-o", "FSTYPE,OPTIONS", "-T"]).arg(work_dir),
            )
            .unwrap_or_default(),
            postgresql: bindir
                .and_then(|dir| first_line(Command::new(dir.join("postgres")).arg("--version")))
                .into_iter()
                .collect(),
            openssl: first_line(Command::new("openssl").arg("version")),
            pgseal: env!("CARGO_PKG_VERSION").to_owned(),
            load_before: load(),
            others_before: None,
            time_unix_s: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
        }
    }

    /// Reasons, known before the first step, to trust the figures less.
    pub fn warnings(&self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        if let Some(evidence) = &self.virtual_cpu {
            warnings.push(Warning::VirtualCpu { evidence: evidence.clone() });
        }
        if let Some(cpus) = self.others_before.filter(|cpus| *cpus > QUIET_CPUS) {
            warnings.push(Warning::OtherPrograms {
                cpus,
                limit: QUIET_CPUS,
                when: "before the first step".to_owned(),
            });
        }
        warnings
    }
}

/// Load average of the last minute; 0 if the kernel does not report it.
pub fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

fn cpuinfo_field<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim())
}

/// Whether a CPU flag is recorded: AES, carry-less multiplication, vectors, SHA, the cycle counter.
fn matters(flag: &&str) -> bool {
    ["aes", "clmul", "pmull", "sha"].iter().any(|part| flag.contains(part))
        || ["avx", "asimd", "sve", "gfni"].iter().any(|start| flag.starts_with(start))
        || ["hypervisor", "constant_tsc", "nonstop_tsc", "ssse3"].contains(flag)
}

fn virtual_cpu(flags: &str) -> Option<String> {
    if flags.split(' ').any(|flag| flag == "hypervisor") {
        return Some("CPU flag hypervisor".to_owned());
    }
    let vendor = fs::read_to_string("/sys/class/dmi/id/sys_vendor").unwrap_or_default();
    let vendor = vendor.trim();
    let guests = ["QEMU", "Xen", "VMware", "innotek", "Amazon EC2", "Google", "Microsoft"];
    guests.iter().any(|guest| vendor.starts_with(guest)).then(|| format!("system vendor {vendor}"))
}

fn memory_bytes(meminfo: &str) -> Option<u64> {
    let rest = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(rest.split_ascii_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

fn distribution(os_release: &str) -> Option<String> {
    let name = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim_matches('"').to_owned())
}

fn first_line(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().next()?.trim();
    (output.status.success() && !line.is_empty()).then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_is_told_from_its_flags_and_warned_of() {
        assert_eq!(virtual_cpu("aes hypervisor avx").unwrap(), "CPU flag hypervisor");
        let machine = Environment {
            virtual_cpu: Some("CPU flag hypervisor".to_owned()),
            others_before: Some(1.2),
            ..Environment::default()
        };
        let kinds: Vec<_> = machine.warnings().iter().map(Warning::kind).collect();
        assert_eq!(kinds, ["virtual-cpu", "other-programs"]);
        // The last minute's load may be the lab's own.
        let after_a_run = Environment { load_before: 11.0, ..Environment::default() };
        assert!(after_a_run.warnings().is_empty());
        assert!(Environment::default().warnings().is_empty());
    }

    #[test]
    fn this_machine_tells_its_cpus_memory_and_kernel() {
        let machine = Environment::look(Path::new("/tmp"), None);
        assert!(machine.cpus > 0 && machine.memory_bytes > 1 << 20);
        assert!(machine.kernel.starts_with("Linux"), "{}", machine.kernel);
        assert!(machine.postgresql.is_empty());
    }
}
