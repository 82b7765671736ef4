//! An arm: the library, its set-up per message, and the CPU instructions that it may use.

use serde::{Deserialize, Serialize};

/// The library, and what is set up again for each message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// The system's OpenSSL with a kept EVP context: a new IV for each message.
    Openssl,
    /// The system's OpenSSL as pgcrypto calls it: cipher look-up, context and key schedule for each
    /// message.
    OpensslSetup,
    /// The system's OpenSSL as `openssl speed -evp` calls it: one endless message in pieces.
    OpensslSpeed,
    /// AWS-LC as pgseal calls it: a kept key schedule, a new IV or nonce for each message.
    AwsLc,
}

impl Way {
    /// All ways.
    pub const ALL: [Way; 4] = [Way::Openssl, Way::OpensslSetup, Way::OpensslSpeed, Way::AwsLc];

    /// The way's part of an arm's id.
    pub fn id(self) -> &'static str {
        match self {
            Way::Openssl => "openssl",
            Way::OpensslSetup => "openssl-setup",
            Way::OpensslSpeed => "openssl-speed",
            Way::AwsLc => "aws-lc",
        }
    }

    /// The way in words.
    pub fn title(self) -> &'static str {
        match self {
            Way::Openssl => "OpenSSL, context kept",
            Way::OpensslSetup => "OpenSSL, set up per call",
            Way::OpensslSpeed => "OpenSSL, as openssl speed",
            Way::AwsLc => "AWS-LC",
        }
    }
}

/// The CPU instructions that the libraries may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cpu {
    /// All instructions of the CPU.
    All,
    /// Without AES instructions on 256- and 512-bit registers.
    NoVaes,
    /// Without AES instructions and without carry-less multiplication.
    NoAes,
}

/// AES-NI and PCLMULQDQ: CPUID leaf 1, ECX bits 25 and 1, in the upper half of the first word.
pub const AES_BITS: u64 = 1 << (32 + 25) | 1 << (32 + 1);
/// VAES and VPCLMULQDQ: CPUID leaf 7, ECX bits 9 and 10, in the upper half of the second word.
pub const VAES_BITS: u64 = 1 << (32 + 9) | 1 << (32 + 10);

impl Cpu {
    /// All sets.
    pub const ALL: [Cpu; 3] = [Cpu::All, Cpu::NoVaes, Cpu::NoAes];

    /// The set's part of an arm's id.
    pub fn id(self) -> &'static str {
        match self {
            Cpu::All => "all",
            Cpu::NoVaes => "novaes",
            Cpu::NoAes => "noaes",
        }
    }

    /// The set in words.
    pub fn title(self) -> &'static str {
        match self {
            Cpu::All => "all instructions",
            Cpu::NoVaes => "no VAES",
            Cpu::NoAes => "no AES instructions",
        }
    }

    /// The value of `OPENSSL_ia32cap` for the child process; both libraries read it before their
    /// first call. It always has two words: with only one word OpenSSL 3 also ignores CPUID leaf 7
    /// (AVX2, AVX-512, SHA), while AWS-LC does not. The first word of [`Cpu::NoAes`] is the study's
    /// value.
    pub fn ia32cap(self) -> Option<String> {
        match self {
            Cpu::All => None,
            Cpu::NoVaes => Some(format!("~0x0:~{VAES_BITS:#x}")),
            Cpu::NoAes => Some(format!("~{AES_BITS:#x}:~{VAES_BITS:#x}")),
        }
    }
}

/// A way together with a set of instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArmKind {
    /// The library and its set-up.
    pub way: Way,
    /// The set of instructions.
    pub cpu: Cpu,
}

impl ArmKind {
    /// `aws-lc`, `openssl-noaes`.
    pub fn id(self) -> String {
        match self.cpu {
            Cpu::All => self.way.id().to_owned(),
            cpu => format!("{}-{}", self.way.id(), cpu.id()),
        }
    }

    /// The arm in words.
    pub fn title(self) -> String {
        match self.cpu {
            Cpu::All => self.way.title().to_owned(),
            cpu => format!("{}, {}", self.way.title(), cpu.title()),
        }
    }

    /// The arm with this id.
    pub fn parse(id: &str) -> Option<ArmKind> {
        let all = Way::ALL.into_iter();
        let mut all = all.flat_map(|way| Cpu::ALL.map(|cpu| ArmKind { way, cpu }));
        all.find(|kind| kind.id() == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_those_of_cpuid() {
        assert_eq!(
            Cpu::NoAes.ia32cap().as_deref(),
            Some("~0x200000200000000:~0x60000000000"),
            "the study's mask, and leaf 7 kept but for VAES"
        );
        assert_eq!(Cpu::NoVaes.ia32cap().as_deref(), Some("~0x0:~0x60000000000"));
        assert_eq!(Cpu::All.ia32cap(), None);
    }

    #[test]
    fn arms_are_read_back() {
        for way in Way::ALL {
            for cpu in Cpu::ALL {
                let kind = ArmKind { way, cpu };
                assert_eq!(ArmKind::parse(&kind.id()), Some(kind));
            }
        }
    }
}
