//! Divides the CPUs between server and client.

use rustix::thread::{CpuSet, sched_getaffinity};

/// CPUs of server and client, by number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shares {
    /// The server's.
    pub server: Vec<usize>,
    /// The client's.
    pub client: Vec<usize>,
}

impl Shares {
    /// Divides the given CPUs (in the syntax of `taskset -c`), or the CPUs that this process may
    /// use, into halves. The server, which is measured, gets the odd CPU. If there is only one CPU,
    /// both get it.
    pub fn of(given: Option<&str>) -> Self {
        let all = given.map_or_else(usable, parse);
        if all.len() < 2 {
            return Self { server: all.clone(), client: all };
        }
        let (server, client) = all.split_at(all.len().div_ceil(2));
        Self { server: server.to_vec(), client: client.to_vec() }
    }

    /// Whether server and client have no CPU in common.
    pub fn apart(&self) -> bool {
        !self.server.iter().any(|cpu| self.client.contains(cpu))
    }
}

/// The list for `taskset -c`; none: not pinned.
pub fn list(cpus: &[usize]) -> Option<String> {
    let words: Vec<String> = cpus.iter().map(usize::to_string).collect();
    (!words.is_empty()).then(|| words.join(","))
}

fn usable() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

/// Parses a list such as `0-2,5`.
pub fn parse(list: &str) -> Vec<usize> {
    let mut all = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<usize>(), last.trim().parse::<usize>())
        {
            all.extend(first..=last);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_and_client_have_cpus_of_their_own_where_there_are_two() {
        let of = |list| {
            let shares = Shares::of(Some(list));
            (shares.apart(), shares.server, shares.client)
        };
        assert_eq!(of("0-1"), (true, vec![0], vec![1]));
        assert_eq!(of("2,4-5"), (true, vec![2, 4], vec![5]));
        assert_eq!(of("3"), (false, vec![3], vec![3]));
        assert!(!Shares::of(None).server.is_empty());
        assert_eq!(list(&[0, 2]).as_deref(), Some("0,2"));
    }
}
