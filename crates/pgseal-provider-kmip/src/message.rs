//! Requests and answers of KMIP: Discover Versions, Locate, Encrypt, Decrypt.

use std::fmt;

use zeroize::Zeroizing;

use crate::id::Id;
use crate::ttlv::{Items, Tag, Writer};

/// The longest answer that is read, in bytes. Each one that is asked for is much shorter.
pub(crate) const MAX_ANSWER_LEN: usize = 64 << 10;
/// Bytes of a block of AES, and of the initialization vector of CBC.
pub(crate) const BLOCK_LEN: usize = 16;

/// What an answer begins with.
pub(crate) const RESPONSE_MESSAGE: Tag = Tag(0x42_007B);

const ATTRIBUTE: Tag = Tag(0x42_0008);
const ATTRIBUTE_NAME: Tag = Tag(0x42_000A);
const ATTRIBUTE_VALUE: Tag = Tag(0x42_000B);
const ATTRIBUTES: Tag = Tag(0x42_0125);
const BATCH_COUNT: Tag = Tag(0x42_000D);
const BATCH_ITEM: Tag = Tag(0x42_000F);
const BLOCK_CIPHER_MODE: Tag = Tag(0x42_0011);
const CRYPTOGRAPHIC_ALGORITHM: Tag = Tag(0x42_0028);
const CRYPTOGRAPHIC_PARAMETERS: Tag = Tag(0x42_002B);
const DATA: Tag = Tag(0x42_00C2);
const IV: Tag = Tag(0x42_003D);
const MAXIMUM_ITEMS: Tag = Tag(0x42_004F);
const MAXIMUM_RESPONSE_SIZE: Tag = Tag(0x42_0050);
const NAME: Tag = Tag(0x42_0053);
const NAME_TYPE: Tag = Tag(0x42_0054);
const NAME_VALUE: Tag = Tag(0x42_0055);
const OBJECT_TYPE: Tag = Tag(0x42_0057);
const OPERATION: Tag = Tag(0x42_005C);
const PADDING_METHOD: Tag = Tag(0x42_005F);
const PROTOCOL_VERSION: Tag = Tag(0x42_0069);
const PROTOCOL_VERSION_MAJOR: Tag = Tag(0x42_006A);
const PROTOCOL_VERSION_MINOR: Tag = Tag(0x42_006B);
const REQUEST_HEADER: Tag = Tag(0x42_0077);
const REQUEST_MESSAGE: Tag = Tag(0x42_0078);
const REQUEST_PAYLOAD: Tag = Tag(0x42_0079);
const RESPONSE_PAYLOAD: Tag = Tag(0x42_007C);
const RESULT_MESSAGE: Tag = Tag(0x42_007D);
const RESULT_REASON: Tag = Tag(0x42_007E);
const RESULT_STATUS: Tag = Tag(0x42_007F);
const UNIQUE_IDENTIFIER: Tag = Tag(0x42_0094);

/// Enumerations (KMIP 1.2, section 9.1.3.2).
const AES: u32 = 3;
const CBC: u32 = 1;
const PKCS5: u32 = 3;
const SYMMETRIC_KEY: u32 = 2;
const TEXT_STRING: u32 = 1;
const SUCCESS: u32 = 0;

/// A version of KMIP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    major: i32,
    minor: i32,
}

impl Version {
    /// Those that this client knows, the best one first. Encrypt and Decrypt came with 1.2.
    pub(crate) const ALL: [Version; 5] = [
        Version { major: 2, minor: 1 },
        Version { major: 2, minor: 0 },
        Version { major: 1, minor: 4 },
        Version { major: 1, minor: 3 },
        Version { major: 1, minor: 2 },
    ];
    /// Versions in which a server is asked for its versions, one after the other.
    pub(crate) const ASKED_IN: [Version; 2] =
        [Version { major: 1, minor: 2 }, Version { major: 2, minor: 0 }];

    /// The version of this name, `1.4`.
    pub(crate) fn named(name: &str) -> Option<Version> {
        Version::ALL.into_iter().find(|version| version.to_string() == name)
    }

    fn write(self, writer: &mut Writer) {
        writer.structure(PROTOCOL_VERSION, |writer| {
            writer.integer(PROTOCOL_VERSION_MAJOR, self.major);
            writer.integer(PROTOCOL_VERSION_MINOR, self.minor);
        });
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A request.
pub(crate) enum Request<'a> {
    /// Which versions the server knows.
    DiscoverVersions,
    /// Which symmetric keys have a Name.
    Locate(&'a Id),
    /// Encrypts under a key, with AES-CBC and the padding of PKCS #5.
    Encrypt {
        /// The key.
        key: &'a Id,
        /// The initialization vector.
        iv: &'a [u8; BLOCK_LEN],
        /// What to encrypt.
        data: &'a [u8],
    },
    /// The inverse.
    Decrypt {
        /// The key.
        key: &'a Id,
        /// The initialization vector.
        iv: &'a [u8; BLOCK_LEN],
        /// What to decrypt.
        data: &'a [u8],
    },
}

impl Request<'_> {
    /// The name of the operation.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Request::DiscoverVersions => "Discover Versions",
            Request::Locate(_) => "Locate",
            Request::Encrypt { .. } => "Encrypt",
            Request::Decrypt { .. } => "Decrypt",
        }
    }

    fn operation(&self) -> u32 {
        match self {
            Request::Locate(_) => 0x08,
            Request::DiscoverVersions => 0x1E,
            Request::Encrypt { .. } => 0x1F,
            Request::Decrypt { .. } => 0x20,
        }
    }

    /// The bytes of the request; `None` if it is too long.
    pub(crate) fn encode(&self, version: Version) -> Option<Zeroizing<Vec<u8>>> {
        let mut writer = Writer::new();
        let max = i32::try_from(MAX_ANSWER_LEN).unwrap_or(i32::MAX);
        writer.structure(REQUEST_MESSAGE, |writer| {
            writer.structure(REQUEST_HEADER, |writer| {
                version.write(writer);
                writer.integer(MAXIMUM_RESPONSE_SIZE, max);
                writer.integer(BATCH_COUNT, 1);
            });
            writer.structure(BATCH_ITEM, |writer| {
                writer.enumeration(OPERATION, self.operation());
                writer.structure(REQUEST_PAYLOAD, |writer| self.payload(version, writer));
            });
        });
        writer.finish()
    }

    fn payload(&self, version: Version, writer: &mut Writer) {
        match self {
            Request::DiscoverVersions => {
                for known in Version::ALL {
                    known.write(writer);
                }
            }
            Request::Locate(name) => locate(name, version, writer),
            Request::Encrypt { key, iv, data } | Request::Decrypt { key, iv, data } => {
                writer.text(UNIQUE_IDENTIFIER, key.as_str());
                writer.structure(CRYPTOGRAPHIC_PARAMETERS, |writer| {
                    writer.enumeration(BLOCK_CIPHER_MODE, CBC);
                    writer.enumeration(PADDING_METHOD, PKCS5);
                    writer.enumeration(CRYPTOGRAPHIC_ALGORITHM, AES);
                });
                writer.bytes(DATA, data);
                writer.bytes(IV, *iv);
            }
        }
    }
}

fn locate(name: &Id, version: Version, writer: &mut Writer) {
    let value = |writer: &mut Writer, tag: Tag| {
        writer.structure(tag, |writer| {
            writer.text(NAME_VALUE, name.as_str());
            writer.enumeration(NAME_TYPE, TEXT_STRING);
        });
    };
    // Two are enough to see that the name is not that of one key.
    writer.integer(MAXIMUM_ITEMS, 2);
    if version.major >= 2 {
        writer.structure(ATTRIBUTES, |writer| {
            value(writer, NAME);
            writer.enumeration(OBJECT_TYPE, SYMMETRIC_KEY);
        });
        return;
    }
    writer.structure(ATTRIBUTE, |writer| {
        writer.text(ATTRIBUTE_NAME, "Name");
        value(writer, ATTRIBUTE_VALUE);
    });
    writer.structure(ATTRIBUTE, |writer| {
        writer.text(ATTRIBUTE_NAME, "Object Type");
        writer.enumeration(ATTRIBUTE_VALUE, SYMMETRIC_KEY);
    });
}

/// What the store did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer<'a> {
    /// What was asked, with this result.
    Done(Payload<'a>),
    /// Nothing.
    Failed(Reason),
}

/// Why the store did nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reason {
    /// Its Result Reason.
    pub code: u32,
    /// Its Result Message, shortened, on one line.
    pub said: String,
}

/// The result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Payload<'a>(Items<'a>);

impl Answer<'_> {
    /// Reads the content of a Response Message; `None` if it is none with one result.
    pub(crate) fn parse(content: &[u8]) -> Option<Answer<'_>> {
        const MAX_SAID: usize = 200;
        let mut items = Items::parse(content)?.structures(BATCH_ITEM);
        let item = items.next()?;
        if items.next().is_some() {
            return None;
        }
        if item.enumeration(RESULT_STATUS)? != SUCCESS {
            let said = item.texts(RESULT_MESSAGE).next().unwrap_or("it does not say why");
            let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
            let said = said.chars().filter(|c| !c.is_control()).take(MAX_SAID).collect();
            return Some(Answer::Failed(Reason {
                code: item.enumeration(RESULT_REASON).unwrap_or(0),
                said,
            }));
        }
        let empty = Items::parse(&[])?;
        Some(Answer::Done(Payload(item.structure(RESPONSE_PAYLOAD).unwrap_or(empty))))
    }
}

impl<'a> Payload<'a> {
    /// The best version that the server knows too.
    pub(crate) fn version(self) -> Option<Version> {
        let theirs: Vec<Version> = self
            .0
            .structures(PROTOCOL_VERSION)
            .filter_map(|version| {
                let major = version.integer(PROTOCOL_VERSION_MAJOR)?;
                Some(Version { major, minor: version.integer(PROTOCOL_VERSION_MINOR)? })
            })
            .collect();
        Version::ALL.into_iter().find(|ours| theirs.contains(ours))
    }

    /// The identifiers of the objects that were found; `None` if one is no identifier.
    pub(crate) fn ids(self) -> Option<Vec<Id>> {
        self.0.texts(UNIQUE_IDENTIFIER).map(Id::parse).collect()
    }

    /// What was encrypted or decrypted.
    pub(crate) fn data(self) -> Option<&'a [u8]> {
        self.0.bytes(DATA)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn answer(fill: impl FnOnce(&mut Writer)) -> Zeroizing<Vec<u8>> {
        let mut writer = Writer::new();
        writer.structure(BATCH_ITEM, fill);
        writer.finish().unwrap()
    }

    #[test]
    fn the_best_common_version() {
        let chosen = |theirs: &[(i32, i32)]| {
            let bytes = answer(|writer| {
                writer.enumeration(RESULT_STATUS, SUCCESS);
                writer.structure(RESPONSE_PAYLOAD, |writer| {
                    for (major, minor) in theirs {
                        Version { major: *major, minor: *minor }.write(writer);
                    }
                });
            });
            match Answer::parse(&bytes).unwrap() {
                Answer::Done(payload) => payload.version().map(|version| version.to_string()),
                Answer::Failed(_) => None,
            }
        };
        assert_eq!(chosen(&[(1, 0), (1, 2), (1, 4), (3, 0)]).as_deref(), Some("1.4"));
        assert_eq!(chosen(&[(2, 1), (2, 0), (1, 4)]).as_deref(), Some("2.1"));
        assert_eq!(chosen(&[(1, 0), (1, 1)]), None);
        assert_eq!(chosen(&[]), None);
    }

    #[test]
    fn failures_are_cut_and_on_one_line() {
        let bytes = answer(|writer| {
            writer.enumeration(RESULT_STATUS, 1);
            writer.enumeration(RESULT_REASON, 12);
            writer.text(RESULT_MESSAGE, &format!("a\n b {}", "x".repeat(500)));
        });
        let Some(Answer::Failed(reason)) = Answer::parse(&bytes) else { unreachable!() };
        assert!(reason.said.starts_with("a b xxx") && reason.said.len() == 200);
        assert_eq!(reason.code, 12);
        // No result, and two.
        assert_eq!(Answer::parse(&answer(|_| ())), None);
        let two = [bytes.to_vec(), bytes.to_vec()].concat();
        assert_eq!(Answer::parse(&two), None);
        assert_eq!(Answer::parse(&[]), None);
    }

    /// A Name is an attribute of its own in 2.0 and later, and one with a name before.
    #[test]
    fn names_in_each_version() {
        let name = Id::parse("pgseal").unwrap();
        for version in Version::ALL {
            let bytes = Request::Locate(&name).encode(version).unwrap();
            let items = Items::parse(&bytes).unwrap().structure(REQUEST_MESSAGE).unwrap();
            let item = items.structure(BATCH_ITEM).unwrap();
            assert_eq!(item.enumeration(OPERATION), Some(8));
            let payload = item.structure(REQUEST_PAYLOAD).unwrap();
            let value = match version.major {
                1 => payload.structure(ATTRIBUTE).unwrap().structure(ATTRIBUTE_VALUE),
                _ => payload.structure(ATTRIBUTES).unwrap().structure(NAME),
            };
            assert_eq!(value.unwrap().texts(NAME_VALUE).next(), Some("pgseal"), "{version}");
        }
    }
}
