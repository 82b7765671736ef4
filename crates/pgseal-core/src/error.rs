//! Errors of sealed files, one variant for each cause.

use core::fmt;
use std::io;

use pgseal_crypto::{AegisError, GcmError, NotApproved};

use crate::header::FORMAT_VERSION;
use crate::keyset::{Generation, KeyringId};
use crate::memory::OutOfMemory;
use crate::random::RandomFailed;
use crate::units::BlockNo;

/// Why a header is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderFault {
    /// The fields of the file keys say what no writer writes.
    BadKeyStage {
        /// How many file keys the file had before the newest.
        predecessors: u32,
        /// The stage of a resealing.
        stage: u32,
    },
    /// The field of the place holds no valid place.
    BadPlace,
    /// The wrapped file key does not authenticate under the named data key.
    NotAuthentic,
    /// The header is another one than that with which the file was opened, or an older one.
    Replaced,
    /// Bytes that the format reserves are not zeros.
    ReservedNotZero,
    /// The layout cannot carry the suite, or the header has an unknown suite number or layout
    /// number.
    UnknownSuite {
        /// The number of the suite in the header.
        suite: u16,
        /// The number of the layout in the header.
        layout: u16,
    },
    /// A format version that this program does not know.
    UnknownVersion(u16),
}

/// A failure of an operation on a sealed file.
#[derive(Debug)]
#[non_exhaustive]
pub enum SealError {
    /// A block does not authenticate, has data but no tag, or is zeros where the format does not
    /// allow zeros: the file is damaged.
    BlockDamaged(BlockNo),
    /// A block authenticates, and is older than the one that the server wrote last
    /// ([`crate::versions`]): somebody put an older copy there.
    BlockOlder(BlockNo),
    /// The cryptographic library refused; a bug in pgseal.
    Cipher(&'static str),
    /// The header exists but is not acceptable: the file is damaged or from a newer version.
    Header(HeaderFault),
    /// The storage below failed.
    Io(io::Error),
    /// The key set has no key of this keyring and generation.
    KeyUnknown {
        /// The keyring that the header names.
        keyring_id: KeyringId,
        /// The generation that the header names.
        generation: Generation,
    },
    /// This is a FIPS build, and its module does not have the suite.
    NotApproved(NotApproved),
    /// A file of this layout keeps its file key.
    NotResealable,
    /// There is no memory for the operation. The file is unchanged, and a retry may succeed.
    OutOfMemory,
    /// No random numbers; nothing was sealed.
    Random,
    /// An offset or length beyond what a file can have.
    TooLarge,
}

impl fmt::Display for HeaderFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HeaderFault::BadKeyStage { predecessors, stage } => write!(
                f,
                "the header names stage {stage} of a resealing after {predecessors} file keys, which does not exist in this layout"
            ),
            HeaderFault::BadPlace => write!(f, "the header names no place that could be one"),
            HeaderFault::NotAuthentic => {
                write!(
                    f,
                    "the header does not authenticate: it was changed, or it is another file's"
                )
            }
            HeaderFault::Replaced => {
                write!(f, "the header was replaced by another one while the file was open")
            }
            HeaderFault::ReservedNotZero => write!(f, "reserved bytes of the header are not zero"),
            HeaderFault::UnknownSuite { suite, layout } => {
                write!(f, "the header names suite {suite} in layout {layout}, which do not exist")
            }
            HeaderFault::UnknownVersion(version) => write!(
                f,
                "the header has format version {version}; this pgseal knows version {FORMAT_VERSION}, use the one that wrote it"
            ),
        }
    }
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SealError::BlockDamaged(block) => {
                write!(f, "block {block} does not authenticate: it was damaged or exchanged")
            }
            SealError::BlockOlder(block) => write!(
                f,
                "block {block} is an older version than the one that was written last: somebody put an older copy there"
            ),
            SealError::Cipher(what) => write!(f, "the cryptographic library refused: {what}"),
            SealError::Header(fault) => fault.fmt(f),
            SealError::Io(error) => error.fmt(f),
            SealError::KeyUnknown { keyring_id, generation } => write!(
                f,
                "it is sealed with generation {generation} of keyring {keyring_id}, which is not at hand"
            ),
            SealError::NotApproved(why) => why.fmt(f),
            SealError::NotResealable => {
                write!(f, "a file of this layout gets a new file key by \"pgseal rekey\" only")
            }
            SealError::OutOfMemory => {
                write!(
                    f,
                    "out of memory; free some, or raise the limit of the process, and try again"
                )
            }
            SealError::Random => write!(f, "no random numbers could be had"),
            SealError::TooLarge => write!(f, "offset or length out of range"),
        }
    }
}

impl std::error::Error for SealError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SealError::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for SealError {
    fn from(error: io::Error) -> SealError {
        SealError::Io(error)
    }
}

impl From<OutOfMemory> for SealError {
    fn from(_: OutOfMemory) -> SealError {
        SealError::OutOfMemory
    }
}

impl From<RandomFailed> for SealError {
    fn from(_: RandomFailed) -> SealError {
        SealError::Random
    }
}

impl From<NotApproved> for SealError {
    fn from(why: NotApproved) -> SealError {
        SealError::NotApproved(why)
    }
}

impl From<GcmError> for SealError {
    fn from(error: GcmError) -> SealError {
        match error {
            GcmError::KeyLength => SealError::Cipher("key length"),
            GcmError::OutOfMemory => SealError::OutOfMemory,
            GcmError::NotAuthentic => SealError::Cipher("not authentic"),
            GcmError::Internal => SealError::Cipher("AES-GCM not sealed"),
        }
    }
}

impl From<AegisError> for SealError {
    fn from(error: AegisError) -> SealError {
        match error {
            AegisError::Length => SealError::Cipher("buffer length"),
            AegisError::NotApproved(why) => SealError::NotApproved(why),
            AegisError::NotAuthentic => SealError::Cipher("not authentic"),
        }
    }
}
