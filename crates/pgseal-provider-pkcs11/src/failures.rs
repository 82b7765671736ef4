//! Whose fault an error of PKCS #11 is.

use cryptoki::error::{Error, RvError};
use pgseal_plugin::{Failure, Fault};

/// An error of `action`, where the wrapped key cannot be the reason.
pub(crate) fn failed(action: &'static str) -> impl Fn(Error) -> Failure<'static> {
    move |error| {
        let kind = fault(&error).unwrap_or(match error {
            // SoftHSM gives this while another process writes the token, and others as they like.
            Error::Pkcs11(RvError::GeneralError | RvError::FunctionFailed, _) => Fault::Unavailable,
            _ => Fault::Configuration,
        });
        Failure::new(kind, format!("{action}: {}", shown(&error)))
    }
}

/// An error of unwrapping: what no other reason explains is the fault of the wrapped key.
pub(crate) fn not_opened(action: &'static str) -> impl Fn(Error) -> Failure<'static> {
    move |error| {
        let kind = fault(&error).unwrap_or(Fault::Wrong);
        Failure::new(kind, format!("{action}: {}", shown(&error)))
    }
}

/// Whose fault an error is, if its code says so.
fn fault(error: &Error) -> Option<Fault> {
    let Error::Pkcs11(code, _) = error else { return None };
    match code {
        RvError::PinIncorrect
        | RvError::PinInvalid
        | RvError::PinLenRange
        | RvError::PinExpired
        | RvError::PinLocked
        | RvError::UserNotLoggedIn
        | RvError::UserPinNotInitialized
        | RvError::UserTypeInvalid
        | RvError::KeyFunctionNotPermitted
        | RvError::ActionProhibited => Some(Fault::Refused),
        RvError::DeviceError
        | RvError::DeviceMemory
        | RvError::DeviceRemoved
        | RvError::TokenNotPresent
        | RvError::TokenNotRecognized
        | RvError::SlotIdInvalid
        | RvError::SessionCount
        | RvError::SessionClosed
        | RvError::SessionHandleInvalid
        | RvError::HostMemory => Some(Fault::Unavailable),
        RvError::MechanismInvalid | RvError::KeyTypeInconsistent | RvError::KeySizeRange => {
            Some(Fault::Configuration)
        }
        _ => None,
    }
}

fn shown(error: &Error) -> String {
    match error {
        Error::Pkcs11(RvError::PinIncorrect, _) => {
            "the PIN is wrong; correct the file of pin-source".to_owned()
        }
        Error::Pkcs11(RvError::PinLocked, _) => {
            "the PIN is locked; the token's security officer can unlock it".to_owned()
        }
        Error::Pkcs11(code, function) => format!("{function} gives {code:?}"),
        other => other.to_string(),
    }
}
