//! Whose fault an answer or an error of the store is, and what to do next.

use std::io::{self, ErrorKind};

use pgseal_plugin::{Failure, Fault, configuration, tls};

use crate::message::Reason;

/// The failure for an operation that the store did not do. `asked` names the store and the
/// operation.
pub(crate) fn of_reason(reason: &Reason, asked: &str) -> Failure<'static> {
    let said = &reason.said;
    let new = |kind, what: String| Failure::new(kind, format!("{asked}: {what} ({said})"));
    match reason.code {
        // Some stores have no reason of their own for a key that is not active.
        PERMISSION_DENIED if said.to_ascii_lowercase().contains("active state") => {
            new(Fault::KeyGone, NOT_ACTIVE.to_owned())
        }
        ITEM_NOT_FOUND | OBJECT_ARCHIVED | OBJECT_DESTROYED | OBJECT_NOT_FOUND => new(
            Fault::KeyGone,
            "the store has no such key; correct id= or name=, or open with the escrow copy"
                .to_owned(),
        ),
        WRONG_KEY_LIFECYCLE_STATE => new(Fault::KeyGone, NOT_ACTIVE.to_owned()),
        AUTHENTICATION_NOT_SUCCESSFUL => new(
            Fault::Refused,
            "the store does not accept the client certificate as that of a user".to_owned(),
        ),
        PERMISSION_DENIED | NOT_AUTHORISED | USAGE_LIMIT_EXCEEDED | INCOMPATIBLE_USAGE_MASK => new(
            Fault::Refused,
            "the store refuses; its policy, or the key's usage mask, must allow this user to \
             encrypt and decrypt"
                .to_owned(),
        ),
        OPERATION_NOT_SUPPORTED => new(
            Fault::Configuration,
            "the store does not have this operation, which the plugin needs".to_owned(),
        ),
        INVALID_MESSAGE | UNSUPPORTED_PROTOCOL_VERSION => new(
            Fault::Configuration,
            "the store does not take this message; try another protocol=".to_owned(),
        ),
        GENERAL_FAILURE
        | INTERNAL_SERVER_ERROR
        | SERVER_LIMIT_EXCEEDED
        | PROTECTION_STORAGE_UNAVAILABLE => {
            new(Fault::Unavailable, "the store fails; its log says why".to_owned())
        }
        code => new(Fault::Configuration, format!("the store answers with reason {code:#x}")),
    }
}

impl Reason {
    /// Whether it may mean that the key does not open what it was to decrypt. Stores name a padding
    /// that is wrong in different ways.
    pub(crate) fn may_be_wrong_key(&self) -> bool {
        matches!(
            self.code,
            INVALID_FIELD
                | CRYPTOGRAPHIC_FAILURE
                | BAD_CRYPTOGRAPHIC_PARAMETERS
                | INTERNAL_SERVER_ERROR
                | GENERAL_FAILURE
        )
    }

    /// Whether the server may know the question in another version.
    pub(crate) fn is_about_version(&self) -> bool {
        matches!(self.code, INVALID_MESSAGE | UNSUPPORTED_PROTOCOL_VERSION)
    }
}

const NOT_ACTIVE: &str = "the key is not active: it was revoked or deactivated, or never activated";

// Result Reasons (KMIP 2.1, section 11.48).
const ITEM_NOT_FOUND: u32 = 0x01;
const AUTHENTICATION_NOT_SUCCESSFUL: u32 = 0x03;
const INVALID_MESSAGE: u32 = 0x04;
const OPERATION_NOT_SUPPORTED: u32 = 0x05;
const INVALID_FIELD: u32 = 0x07;
const CRYPTOGRAPHIC_FAILURE: u32 = 0x0A;
const PERMISSION_DENIED: u32 = 0x0C;
const OBJECT_ARCHIVED: u32 = 0x0D;
const USAGE_LIMIT_EXCEEDED: u32 = 0x1A;
const BAD_CRYPTOGRAPHIC_PARAMETERS: u32 = 0x24;
const INCOMPATIBLE_USAGE_MASK: u32 = 0x29;
const INTERNAL_SERVER_ERROR: u32 = 0x2A;
const OBJECT_DESTROYED: u32 = 0x36;
const OBJECT_NOT_FOUND: u32 = 0x37;
const NOT_AUTHORISED: u32 = 0x39;
const SERVER_LIMIT_EXCEEDED: u32 = 0x3A;
const UNSUPPORTED_PROTOCOL_VERSION: u32 = 0x3F;
const WRONG_KEY_LIFECYCLE_STATE: u32 = 0x43;
const PROTECTION_STORAGE_UNAVAILABLE: u32 = 0x44;
const GENERAL_FAILURE: u32 = 0x100;

/// The failure for a connection that broke, or was never made.
pub(crate) fn of_connection(error: &io::Error, address: &str) -> Failure<'static> {
    if let Some(error) = tls::inside(error) {
        return tls::failure(error, address);
    }
    let what = match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "no answer in time".to_owned(),
        ErrorKind::UnexpectedEof => "the store closes the connection".to_owned(),
        _ => format!("no connection: {error}"),
    };
    Failure::new(Fault::Unavailable, format!("{address}: {what}"))
}

/// The failure for an answer that is none of KMIP.
pub(crate) fn not_understood(address: &str) -> Failure<'static> {
    configuration(format!("{address}: what answers does not speak KMIP; check the port"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_fault() {
        for (code, said, kind) in [
            (ITEM_NOT_FOUND, "Could not locate object: 7", Fault::KeyGone),
            (PERMISSION_DENIED, "Could not locate object: 7", Fault::Refused),
            (PERMISSION_DENIED, "must be in the Active state", Fault::KeyGone),
            (WRONG_KEY_LIFECYCLE_STATE, "", Fault::KeyGone),
            (AUTHENTICATION_NOT_SUCCESSFUL, "", Fault::Refused),
            (OPERATION_NOT_SUPPORTED, "", Fault::Configuration),
            (INVALID_FIELD, "", Fault::Configuration),
            (GENERAL_FAILURE, "", Fault::Unavailable),
            (0, "", Fault::Configuration),
        ] {
            let reason = Reason { code, said: said.to_owned() };
            let failure = of_reason(&reason, "kmip at a:1, Decrypt");
            assert_eq!(failure.kind, kind, "{code}");
            assert!(failure.message.contains(said), "{}", failure.message);
        }
    }

    #[test]
    fn errors_of_connections_may_pass() {
        for kind in [ErrorKind::TimedOut, ErrorKind::ConnectionRefused, ErrorKind::UnexpectedEof] {
            let failure = of_connection(&io::Error::from(kind), "a:1");
            assert_eq!(failure.kind, Fault::Unavailable, "{kind}");
        }
    }
}
