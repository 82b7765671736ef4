//! Turns a profile into a plan: one case per algorithm, with all sizes and both directions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::algorithm::{Algorithm, Direction};
use super::arm::{ArmKind, Cpu, Way};
use super::protocol::{KeyAlgorithm, KeyKind};
use super::table;
use crate::environment::Environment;
use crate::error::LabError;
use crate::plan::{Arm, Better, Case, Plan, value_of};
use crate::profile::Profile;

/// The size whose throughput is a case's value: PostgreSQL's page.
pub const PAGE_BYTES: usize = 8192;
/// Id of the second measurement of the baseline.
pub const AGAIN: &str = "openssl-again";

/// `[parameters]` of a profile.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    /// Milliseconds of one burst.
    burst_ms: f64,
    /// Message sizes in bytes.
    sizes: Vec<usize>,
    /// Names of algorithms; absent: all.
    #[serde(default)]
    algorithms: Option<Vec<String>>,
    /// Ids of arms; absent: all.
    #[serde(default)]
    arms: Option<Vec<String>>,
    /// Rows of study 2's table; absent: all.
    #[serde(default)]
    table: Option<Vec<String>>,
    /// Private keys: `rsa-2048`.
    keys: Vec<String>,
    /// Milliseconds of one burst of signatures.
    #[serde(default)]
    key_burst_ms: Option<f64>,
}

/// What a case measures; its parameter `work`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaseWork {
    /// An algorithm of study 1, or a newer one.
    Cipher(String),
    /// A row of study 2's table.
    Table(String),
    /// A private key, to measure signing or verification.
    Signature {
        /// The key.
        kind: KeyKind,
        /// Whether to verify instead of sign.
        verify: bool,
    },
}

/// The arms, the baseline first.
fn arms() -> Vec<ArmKind> {
    let kind = |way, cpu| ArmKind { way, cpu };
    vec![
        kind(Way::Openssl, Cpu::All),
        kind(Way::Openssl, Cpu::NoVaes),
        kind(Way::Openssl, Cpu::NoAes),
        kind(Way::OpensslSetup, Cpu::All),
        kind(Way::OpensslSetup, Cpu::NoVaes),
        kind(Way::OpensslSetup, Cpu::NoAes),
        kind(Way::OpensslSpeed, Cpu::All),
        kind(Way::OpensslSpeed, Cpu::NoAes),
        kind(Way::AwsLc, Cpu::All),
        kind(Way::AwsLc, Cpu::NoVaes),
        kind(Way::AwsLc, Cpu::NoAes),
    ]
}

/// The plan of a profile.
pub fn plan(profile: &Profile, machine: &Environment) -> Result<Plan, LabError> {
    let parameters: Parameters = profile.parameters()?;
    let sizes = checked_sizes(&parameters.sizes)?;
    let chosen = |id: &str| parameters.arms.as_ref().is_none_or(|ids| ids.iter().any(|i| i == id));
    let kinds: Vec<ArmKind> = arms()
        .into_iter()
        .enumerate()
        .filter(|(at, k)| *at == 0 || chosen(&k.id()))
        .map(|(_, k)| k)
        .collect();
    let mut plan_arms: Vec<Arm> = kinds.iter().map(|kind| arm(*kind)).collect();
    plan_arms.insert(1, again());

    let burst_s = parameters.burst_ms / 1000.0;
    let key_burst_s = parameters.key_burst_ms.unwrap_or(parameters.burst_ms) / 1000.0;
    let mut cases = Vec::new();
    for algorithm in algorithms(parameters.algorithms.as_deref())? {
        cases.push(cipher_case(algorithm, &kinds, sizes.len(), burst_s)?);
    }
    for entry in table::ENTRIES {
        let wanted = |names: &Vec<String>| names.iter().any(|name| name == entry.name);
        if parameters.table.as_ref().is_none_or(wanted) {
            cases.push(table_case(entry, sizes.len(), burst_s)?);
        }
    }
    for name in &parameters.keys {
        let kind = key_kind(name)?;
        for verify in [false, true] {
            cases.push(signature_case(kind, verify, key_burst_s)?);
        }
    }
    let parameters = BTreeMap::from([
        ("interleave".to_owned(), json!(true)),
        ("sizes".to_owned(), json!(sizes)),
        ("burst_s".to_owned(), json!(burst_s)),
        ("key_burst_s".to_owned(), json!(key_burst_s)),
        ("cpu_flags".to_owned(), json!(flags_that_matter(machine))),
    ]);
    Ok(Plan {
        experiment: "modes".to_owned(),
        profile: profile.name.clone(),
        arms: plan_arms,
        cases,
        rounds: profile.rounds,
        warmups: profile.warmups,
        seed: profile.seed,
        parameters,
    })
}

fn checked_sizes(sizes: &[usize]) -> Result<Vec<usize>, LabError> {
    let whole = sizes.iter().all(|size| *size > 0 && size.is_multiple_of(16) && *size <= 1 << 20);
    if !whole || !sizes.contains(&PAGE_BYTES) {
        return Err(LabError::Usage(format!(
            "sizes = {sizes:?}: whole blocks of 16 bytes, up to 1 MiB, {PAGE_BYTES} among them"
        )));
    }
    Ok(sizes.to_vec())
}

fn algorithms(names: Option<&[String]>) -> Result<Vec<Algorithm>, LabError> {
    let Some(names) = names else { return Ok(Algorithm::all()) };
    let parse = |name: &String| name.parse().map_err(|e| LabError::Usage(format!("{e}")));
    names.iter().map(parse).collect()
}

/// `rsa-2048`, `dsa-1024`, `ecdsa-256`.
fn key_kind(name: &str) -> Result<KeyKind, LabError> {
    let all = [KeyAlgorithm::Rsa, KeyAlgorithm::Dsa, KeyAlgorithm::Ecdsa];
    let parse = || {
        let (algorithm, bits) = name.split_once('-')?;
        let algorithm = all.into_iter().find(|known| known.id() == algorithm)?;
        Some(KeyKind { algorithm, bits: bits.parse().ok()? })
    };
    parse().ok_or_else(|| {
        LabError::Usage(format!("keys: {name}: they are named like rsa-2048, dsa-1024, ecdsa-256"))
    })
}

fn arm(kind: ArmKind) -> Arm {
    Arm {
        id: kind.id(),
        title: kind.title(),
        again: false,
        attributes: BTreeMap::from([
            ("way".to_owned(), json!(kind.way)),
            ("cpu".to_owned(), json!(kind.cpu)),
        ]),
    }
}

fn again() -> Arm {
    let first = arm(ArmKind { way: Way::Openssl, cpu: Cpu::All });
    Arm {
        id: AGAIN.to_owned(),
        title: "the first once more (A/A)".to_owned(),
        again: true,
        ..first
    }
}

/// The estimate of a burst includes its own length, calibration, and measuring the core's clock.
fn burst_estimate_s(burst_s: f64) -> f64 {
    burst_s * 1.5 + 0.0005
}

fn case(
    id: String,
    title: String,
    unit: &str,
    work: CaseWork,
    estimate_s: f64,
) -> Result<Case, LabError> {
    Ok(Case {
        id,
        title,
        unit: unit.to_owned(),
        better: Better::Higher,
        arms: Vec::new(),
        baseline: None,
        parameters: BTreeMap::from([("work".to_owned(), value_of("work", &work)?)]),
        rounds: None,
        estimate_s,
    })
}

fn cipher_case(
    algorithm: Algorithm,
    kinds: &[ArmKind],
    sizes: usize,
    burst_s: f64,
) -> Result<Case, LabError> {
    // `openssl speed` does not process tags, so only the modes of study 1 are measured this way.
    let endless = algorithm.mode.iv_len() != 12 && algorithm.mode != super::algorithm::Mode::Xts;
    let fits = |kind: &&ArmKind| kind.way != Way::OpensslSpeed || endless;
    let mut arms: Vec<String> = kinds.iter().filter(fits).map(|kind| kind.id()).collect();
    arms.insert(1, AGAIN.to_owned());
    let bursts = sizes * Direction::ALL.len();
    let title = format!("{}, encrypting and decrypting", algorithm.title());
    let work = CaseWork::Cipher(algorithm.to_string());
    let estimate_s = burst_estimate_s(burst_s) * bursts as f64;
    Ok(Case { arms, ..case(algorithm.to_string(), title, "bytes/s", work, estimate_s)? })
}

fn table_case(entry: table::Entry, sizes: usize, burst_s: f64) -> Result<Case, LabError> {
    let work = CaseWork::Table(entry.name.to_owned());
    let estimate_s = burst_estimate_s(burst_s) * sizes as f64;
    let title = format!("{} (openssl speed)", entry.name);
    let case = case(format!("speed.{}", entry.id()), title, "bytes/s", work, estimate_s)?;
    Ok(Case { arms: vec![Way::Openssl.id().to_owned(), AGAIN.to_owned()], ..case })
}

fn signature_case(kind: KeyKind, verify: bool, burst_s: f64) -> Result<Case, LabError> {
    let verb = if verify { "verify" } else { "sign" };
    let work = CaseWork::Signature { kind, verify };
    let title = format!("{}, {} bits: {verb}", kind.algorithm.id().to_uppercase(), kind.bits);
    let id = format!("{verb}.{}", kind.id());
    let case = case(id, title, "1/s", work, burst_estimate_s(burst_s))?;
    Ok(Case { arms: vec![Way::Openssl.id().to_owned(), AGAIN.to_owned()], ..case })
}

/// The CPU flags that decide which arms can be measured.
fn flags_that_matter(machine: &Environment) -> Vec<String> {
    let known = ["aes", "pclmulqdq", "vaes", "vpclmulqdq"];
    machine.cpu_flags.iter().filter(|flag| known.contains(&flag.as_str())).cloned().collect()
}

/// Name of the extra figure of one direction and size: `encrypt_8192_bytes_per_s`.
pub fn figure(direction: Direction, bytes: usize) -> String {
    format!("{}_{bytes}_bytes_per_s", direction.id())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::Experiment;
    use crate::experiments::modes::Modes;

    #[test]
    fn every_profile_makes_a_plan() {
        let machine = Environment { cpu_flags: vec!["aes".to_owned()], ..Environment::default() };
        for (name, _) in Modes.profiles() {
            let profile = Profile::load(&Modes, name).unwrap();
            let plan = plan(&profile, &machine).unwrap();
            assert_eq!(plan.arms[0].id, "openssl");
            assert_eq!(plan.again().map(|arm| arm.id.as_str()), Some(AGAIN));
            for case in &plan.cases {
                assert!(case.arms.iter().all(|id| plan.arm(id).is_some()), "{}", case.id);
                assert!(case.required::<CaseWork>("work").is_ok(), "{}", case.id);
            }
            let limit_s = match *name {
                "tiny" => 10.0,
                "advise" => 30.0,
                "quick" => 110.0,
                _ => 600.0,
            };
            assert!(plan.estimate_s() < limit_s, "{name}: {} s", plan.estimate_s());
        }
    }

    #[test]
    fn the_full_profile_has_every_mode_key_length_size_and_way() {
        let profile = Profile::load(&Modes, "full").unwrap();
        let plan = plan(&profile, &Environment::default()).unwrap();
        for algorithm in Algorithm::all() {
            let case = plan.case(&algorithm.to_string()).unwrap();
            assert!(case.arms.len() >= 10, "{}: {:?}", case.id, case.arms);
        }
        let sizes: Vec<usize> = plan.required("sizes").unwrap();
        assert_eq!(sizes, [16, 64, 256, 1024, 8192, 16384]);
        for id in ["speed.md2", "speed.rc4", "sign.rsa-512", "verify.dsa-2048", "sign.ecdsa-256"] {
            assert!(plan.case(id).is_some(), "{id}");
        }
    }
}
