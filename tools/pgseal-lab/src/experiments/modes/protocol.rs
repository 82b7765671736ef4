//! The messages between the experiment and its child processes: one JSON document per line.

use serde::{Deserialize, Serialize};

use super::algorithm::Direction;
use super::arm::Way;

/// A request to the child.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Report libraries, instructions and core.
    About,
    /// Create a private key.
    MakeKey(KeyKind),
    /// Measure a burst.
    Measure(Task),
}

/// One burst.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// The operation to repeat.
    pub work: WorkKind,
    /// The duration in seconds, without set-up.
    pub burst_s: f64,
}

/// The operation to repeat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkKind {
    /// A message of `bytes` through a cipher.
    Cipher {
        /// The name that [`super::algorithm::Algorithm`] prints.
        algorithm: String,
        /// The direction.
        direction: Direction,
        /// Bytes of one message; whole blocks.
        bytes: usize,
        /// Library and set-up.
        way: Way,
    },
    /// A message of `bytes` through an algorithm of study 2's table.
    Table {
        /// The study's name: `hmac(md5)`, `blowfish cbc`.
        algorithm: String,
        /// Bytes of one message.
        bytes: usize,
    },
    /// One signature, created or verified.
    Signature {
        /// The private key (PKCS #1, SEC 1 or PKCS #8, DER) in hex.
        key: String,
        /// Its kind.
        kind: KeyKind,
        /// Whether to verify instead of sign.
        verify: bool,
    },
}

/// A kind of private key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KeyKind {
    /// The algorithm.
    pub algorithm: KeyAlgorithm,
    /// Bits of modulus or curve.
    pub bits: u32,
}

/// A public-key algorithm that signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyAlgorithm {
    /// RSA with PKCS #1 1.5 padding (RFC 8017).
    Rsa,
    /// DSA (FIPS 186-4).
    Dsa,
    /// ECDSA over a NIST curve (FIPS 186-5).
    Ecdsa,
}

impl KeyAlgorithm {
    /// `rsa`, `dsa`, `ecdsa`.
    pub fn id(self) -> &'static str {
        match self {
            KeyAlgorithm::Rsa => "rsa",
            KeyAlgorithm::Dsa => "dsa",
            KeyAlgorithm::Ecdsa => "ecdsa",
        }
    }
}

impl KeyKind {
    /// `rsa-2048`.
    pub fn id(self) -> String {
        format!("{}-{}", self.algorithm.id(), self.bits)
    }
}

/// An answer of the child.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// Answers [`Request::About`].
    About(About),
    /// Answers [`Request::MakeKey`]: the private key, DER in hex.
    Key(String),
    /// Answers [`Request::Measure`].
    Measured(Measured),
    /// The library does not support the operation.
    Missing {
        /// Why not.
        why: String,
        /// What to install or configure.
        remedy: String,
    },
    /// The operation failed.
    Failed(String),
}

/// The surroundings of a child process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// The CPU that the process is pinned to.
    pub core: usize,
    /// `OpenSSL_version`; none without a system libcrypto.
    pub openssl: Option<String>,
    /// The file name under which libcrypto was loaded.
    pub libcrypto: Option<String>,
    /// OpenSSL's description of the CPU (`OPENSSL_info`, from 3.0 on).
    pub openssl_cpu: Option<String>,
    /// Whether OpenSSL may use AES instructions, according to this description.
    pub openssl_aes: Option<bool>,
    /// Whether OpenSSL may use VAES, according to this description.
    pub openssl_vaes: Option<bool>,
    /// AWS-LC's version.
    pub aws_lc: String,
    /// Whether AWS-LC uses AES instructions (`EVP_has_aes_hardware`).
    pub aws_lc_aes: bool,
    /// The source of core cycles.
    pub cycles: CycleSource,
}

/// Where the number of core cycles comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CycleSource {
    /// The CPU's counter of core cycles (`perf_event_open`), user mode.
    Counter,
    /// The core's frequency around each burst, from a chain of dependent one-cycle instructions.
    DependentChain,
    /// No source.
    #[default]
    None,
}

impl CycleSource {
    /// The name in the JSON.
    pub fn id(self) -> &'static str {
        match self {
            CycleSource::Counter => "counter",
            CycleSource::DependentChain => "dependent-chain",
            CycleSource::None => "none",
        }
    }

    /// The source of this id.
    pub fn by_id(id: &str) -> Option<CycleSource> {
        [CycleSource::Counter, CycleSource::DependentChain].into_iter().find(|one| one.id() == id)
    }

    /// The source in words, for a label.
    pub fn title(self) -> &'static str {
        match self {
            CycleSource::Counter => "the CPU's cycle counter",
            CycleSource::DependentChain => {
                "the core's frequency, measured around each burst with a chain of dependent \
                 one-cycle instructions (no hardware counter here)"
            }
            CycleSource::None => "no cycles to be had on this CPU",
        }
    }
}

/// One measured burst.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Messages or signatures per second: the median of the burst's parts.
    pub per_second: f64,
    /// Number of operations.
    pub count: u64,
    /// Total seconds of the timed parts.
    pub seconds: f64,
    /// Rate of the fastest part over that of the slowest.
    pub spread: f64,
    /// Core cycles of one message or signature.
    pub cycles: Option<f64>,
    /// The core's frequency at the time, in Hz.
    pub core_hz: Option<f64>,
    /// SHA-256 of the output, in hex: the same for every way and every set of instructions. None
    /// where the output is random (signatures).
    pub outcome: Option<String>,
    /// The OpenSSL provider: `default`, `legacy`; none for AWS-LC.
    pub provider: Option<String>,
}
