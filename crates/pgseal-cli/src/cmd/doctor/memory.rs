//! Checks of the ways in which memory with keys and rows can reach a disk: swap, core dumps,
//! hibernation.

use std::fs;
use std::path::Path;

use super::context::Context;
use super::verdict::{Verdict, ok, skip, warn};
use crate::proc::{self, KeyMemory, Limit};

/// So many children of the postmaster are checked: all inherit its memory.
const MOST_CHILDREN: usize = 16;

pub fn memory_lock(context: &Context) -> Verdict {
    let Some(postmaster) = context.server_pid else { return skip("no server runs") };
    let limits = proc::read(postmaster, "limits");
    // A child that ends meanwhile has an empty smaps and is left out.
    let children = context.processes.iter().copied().filter(|pid| *pid != postmaster);
    let all = children.chain([postmaster]).take(MOST_CHILDREN);
    let memory = all.filter_map(|pid| {
        let smaps = proc::read(pid, "smaps").filter(|text| !text.is_empty())?;
        Some((pid, proc::key_memory(&smaps)))
    });
    judge_lock(&memory.collect::<Vec<_>>(), limits.as_deref())
}

fn judge_lock(processes: &[(u32, KeyMemory)], limits: Option<&str>) -> Verdict {
    let limit = match limits.and_then(|text| proc::soft_limit(text, "Max locked memory")) {
        Some(Limit::Unlimited) => "no limit".to_owned(),
        Some(Limit::Bytes(bytes)) => format!("limit {} kB", bytes / 1024),
        None => "limit not known".to_owned(),
    };
    let Some((_, least)) = processes.iter().min_by_key(|(_, memory)| memory.locked_kib) else {
        return skip("the server's processes may not be looked at");
    };
    let none = processes.iter().find(|(_, memory)| *memory == KeyMemory::default());
    if let Some((pid, _)) = none {
        return warn(format!("process {pid} keeps its keys in memory that a core dump would have"));
    }
    let worst = processes.iter().max_by_key(|(_, memory)| memory.unlocked_kib);
    match worst.filter(|(_, memory)| memory.unlocked_kib > 0) {
        Some((pid, memory)) => {
            warn(format!("{} kB of keys of process {pid} not locked, {limit}", memory.unlocked_kib))
        }
        None => ok(format!(
            "{} kB or more of keys locked in each of {} processes, {limit}",
            least.locked_kib,
            processes.len()
        )),
    }
}

pub fn core_dumps(context: &Context) -> Verdict {
    let Some(pid) = context.server_pid else { return skip("no server runs") };
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    judge_core(proc::read(pid, "limits").as_deref(), pattern.trim())
}

fn judge_core(limits: Option<&str>, pattern: &str) -> Verdict {
    let limit = limits.and_then(|text| proc::soft_limit(text, "Max core file size"));
    match limit {
        None => skip("the server's limits may not be looked at"),
        // The kernel ignores the limit when it pipes a dump to a program.
        Some(_) if pattern.starts_with('|') => {
            warn(format!("core_pattern pipes dumps to a program, whatever the limit: {pattern}"))
        }
        Some(Limit::Bytes(0)) => ok("switched off"),
        Some(Limit::Bytes(bytes)) => warn(format!("up to {bytes} bytes, to \"{pattern}\"")),
        Some(Limit::Unlimited) => warn(format!("without limit, to \"{pattern}\"")),
    }
}

pub fn swap(_: &Context) -> Verdict {
    match fs::read_to_string("/proc/swaps") {
        Ok(text) => judge_swap(&text, is_safe),
        Err(error) => skip(format!("/proc/swaps: {error}")),
    }
}

/// Whether a swap area is encrypted, or never leaves memory.
fn is_safe(area: &str) -> bool {
    let name = Path::new(area).canonicalize().unwrap_or_else(|_| area.into());
    let Some(name) = name.file_name().map(|name| name.to_string_lossy().into_owned()) else {
        return false;
    };
    let read = |file: &str| fs::read_to_string(format!("/sys/block/{name}/{file}"));
    if name.starts_with("zram") {
        // With a backing device, pages are written to it.
        return read("backing_dev").is_ok_and(|device| device.trim() == "none");
    }
    read("dm/uuid").is_ok_and(|uuid| uuid.starts_with("CRYPT-"))
}

fn judge_swap(text: &str, is_safe: impl Fn(&str) -> bool) -> Verdict {
    let areas = proc::swaps(text);
    let plain: Vec<String> =
        areas.iter().filter(|(name, _)| !is_safe(name)).map(|(name, _)| name.clone()).collect();
    match (areas.is_empty(), plain.is_empty()) {
        (true, _) => ok("there is none"),
        (false, true) => ok("encrypted, or compressed memory"),
        (false, false) => warn(format!("not known to be encrypted: {}", plain.join(", "))),
    }
}

pub fn hibernation(_: &Context) -> Verdict {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    judge_hibernation(&read("/sys/power/state"), &read("/sys/power/disk"), &read("/proc/swaps"))
}

/// `disk` in `/sys/power/state` means that the kernel can hibernate; it needs swap for that.
fn judge_hibernation(state: &str, disk: &str, swaps: &str) -> Verdict {
    if !state.split_whitespace().any(|word| word == "disk") {
        return ok("the kernel cannot hibernate");
    }
    if disk.contains("[disabled]") || proc::swaps(swaps).is_empty() {
        return ok("disabled, or without swap to write to");
    }
    warn("the kernel can hibernate: it would write all memory, keys among it, to the swap area")
}

#[cfg(test)]
mod tests {
    use super::super::verdict::State;
    use super::*;

    const SWAPS: &str = "Filename Type Size Used Priority\n/dev/sda2 partition 8 0 -2\n";

    fn limits(core: &str) -> String {
        format!("Max core file size        {core}        unlimited     bytes     \n")
    }

    #[test]
    fn core_dumps_are_judged() {
        assert_eq!(judge_core(Some(&limits("0")), "core").state, State::Ok);
        assert_eq!(judge_core(Some(&limits("unlimited")), "core").state, State::Warn);
        assert_eq!(judge_core(Some(&limits("1024")), "core").state, State::Warn);
        assert_eq!(judge_core(Some(&limits("0")), "|/lib/systemd/coredump %p").state, State::Warn);
        assert_eq!(judge_core(None, "core").state, State::Skipped);
    }

    #[test]
    fn locked_memory_is_judged() {
        let limit = Some("Max locked memory         65536        65536       bytes     \n");
        let of = |locked_kib, unlocked_kib| KeyMemory { locked_kib, unlocked_kib };
        let well = judge_lock(&[(7, of(8, 0)), (8, of(12, 0))], limit);
        assert_eq!(well.state, State::Ok);
        assert!(well.saw.contains("8 kB or more of keys locked in each of 2"), "{well:?}");
        // One process with unlocked memory is enough for a warning.
        let part = judge_lock(&[(7, of(8, 0)), (8, of(64, 4))], limit);
        assert_eq!(part.state, State::Warn);
        assert!(part.saw.contains("4 kB of keys of process 8 not locked, limit 64 kB"), "{part:?}");
        let none = judge_lock(&[(7, of(8, 0)), (9, of(0, 0))], limit);
        assert!(none.state == State::Warn && none.saw.contains("process 9"), "{none:?}");
        assert_eq!(judge_lock(&[], None).state, State::Skipped);
    }

    #[test]
    fn swap_is_judged() {
        assert_eq!(judge_swap("Filename Type\n", |_| false).state, State::Ok);
        assert_eq!(judge_swap(SWAPS, |_| true).state, State::Ok);
        let plain = judge_swap(SWAPS, |_| false);
        assert_eq!(plain.state, State::Warn);
        assert!(plain.saw.contains("/dev/sda2"), "{plain:?}");
    }

    #[test]
    fn hibernation_is_judged() {
        let modes = "[platform] shutdown reboot";
        assert_eq!(judge_hibernation("freeze mem", modes, SWAPS).state, State::Ok);
        assert_eq!(judge_hibernation("freeze mem disk", modes, "Filename\n").state, State::Ok);
        assert_eq!(judge_hibernation("freeze mem disk", "[disabled]", SWAPS).state, State::Ok);
        assert_eq!(judge_hibernation("freeze mem disk", modes, SWAPS).state, State::Warn);
    }
}
