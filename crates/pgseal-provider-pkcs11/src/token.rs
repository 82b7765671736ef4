//! The token and the key that a URI names.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error, RvError};
use cryptoki::mechanism::MechanismType;
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass, ObjectHandle};
use cryptoki::session::{Session, UserType};
use cryptoki::slot::{Slot, TokenInfo};
use pgseal_plugin::{Failure, Fault, configuration, files};

use crate::failures::failed;
use crate::pin;
use crate::uri::Uri;

/// A token, with a session that is logged in if the token wants that.
pub(crate) struct OpenToken<'a> {
    uri: &'a Uri,
    // Closed before the library is unloaded.
    session: Session,
    module: Pkcs11,
    slot: Slot,
    info: TokenInfo,
}

/// An AES key on a token, and what it may do.
pub(crate) struct Key {
    pub handle: ObjectHandle,
    pub can_encrypt: bool,
    pub can_wrap: bool,
    label: String,
    id: Vec<u8>,
    is_kept: bool,
}

/// How long to wait before each further try to open a token: 600 ms in all.
const WAITS: [Duration; 5] = [
    Duration::from_millis(20),
    Duration::from_millis(40),
    Duration::from_millis(80),
    Duration::from_millis(160),
    Duration::from_millis(300),
];

/// No further try begins this long after the first one. A network HSM that is down can take seconds
/// to say so, and pgseal stops a plugin after 15 s: then its words would be lost.
const LAST_TRY: Duration = Duration::from_secs(3);

/// Why a token was not opened.
enum NotOpened {
    /// A moment later the token may open. SoftHSM rewrites the file of a token at each login, so a
    /// process that starts meanwhile reads a part of the file: it sees no token, a token without a
    /// PIN, or reports a general error.
    Passing(Failure<'static>),
    /// Another try changes nothing.
    Lasting(Failure<'static>),
}

impl From<Failure<'static>> for NotOpened {
    fn from(failure: Failure<'static>) -> NotOpened {
        match failure.kind {
            Fault::Unavailable => NotOpened::Passing(failure),
            _ => NotOpened::Lasting(failure),
        }
    }
}

impl<'a> OpenToken<'a> {
    /// Loads the library, finds the one token that the URI describes, and logs in. Tries again for
    /// a short time when the token may be only busy.
    pub(crate) fn open(uri: &'a Uri) -> Result<OpenToken<'a>, Failure<'static>> {
        // The library becomes code of this process.
        files::expect_trusted("module-path", &uri.module)?;
        let mut waits = WAITS.into_iter();
        let first = Instant::now();
        loop {
            match OpenToken::open_once(uri) {
                Err(NotOpened::Passing(failure)) => match waits.next() {
                    Some(wait) if first.elapsed() + wait < LAST_TRY => thread::sleep(wait),
                    _ => return Err(failure),
                },
                Err(NotOpened::Lasting(failure)) => return Err(failure),
                Ok(token) => return Ok(token),
            }
        }
    }

    fn open_once(uri: &'a Uri) -> Result<OpenToken<'a>, NotOpened> {
        let module = Pkcs11::new(&uri.module).map_err(|error| {
            configuration(format!("module-path {}: {error}", uri.module.display()))
        })?;
        module
            .initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK))
            .map_err(failed("the token's library does not start"))?;
        match log_in_to_token(&module, uri) {
            Ok((slot, info, session)) => Ok(OpenToken { uri, session, module, slot, info }),
            Err(failure) => {
                // The next try starts the library anew: it reads the token only when it starts.
                // The failure above says more than one of stopping.
                let _ = module.finalize();
                Err(failure)
            }
        }
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// Whether the token has a mechanism, for encrypting (`wraps` false) or wrapping.
    pub(crate) fn offers(&self, mechanism: MechanismType, wraps: bool) -> bool {
        self.module.get_mechanism_info(self.slot, mechanism).is_ok_and(|info| match wraps {
            true => info.wrap() && info.unwrap(),
            false => info.encrypt() && info.decrypt(),
        })
    }

    /// The token for people.
    pub(crate) fn shown(&self) -> String {
        format!(
            "{} {}, token {}, serial {}",
            self.info.manufacturer_id(),
            self.info.model(),
            self.info.label(),
            self.info.serial_number()
        )
    }

    /// The one AES key that the URI describes.
    pub(crate) fn key(&self) -> Result<Key, Failure<'static>> {
        let mut template = vec![
            Attribute::Token(true),
            Attribute::Class(ObjectClass::SECRET_KEY),
            Attribute::KeyType(KeyType::AES),
        ];
        if let Some(label) = &self.uri.object {
            template.push(Attribute::Label(label.clone().into_bytes()));
        }
        if let Some(id) = &self.uri.id {
            template.push(Attribute::Id(id.clone()));
        }
        let found = self.session.find_objects(&template).map_err(failed("no look for the key"))?;
        let handle = match found.as_slice() {
            [handle] => *handle,
            [] => {
                return Err(Failure::new(
                    Fault::KeyGone,
                    format!("the token {} has no such AES key", self.info.label()),
                ));
            }
            several => {
                return Err(configuration(format!(
                    "the URI describes {} AES keys of the token; name one with object= and id=",
                    several.len()
                )));
            }
        };
        let flag = |kind: AttributeType| {
            let values = self.session.get_attributes(handle, &[kind]).unwrap_or_default();
            match values.first() {
                Some(
                    Attribute::Encrypt(value)
                    | Attribute::Decrypt(value)
                    | Attribute::Wrap(value)
                    | Attribute::Unwrap(value)
                    | Attribute::Sensitive(value)
                    | Attribute::Extractable(value),
                ) => Some(*value),
                _ => None,
            }
        };
        let has = |kind| flag(kind).unwrap_or(false);
        let mut key = Key {
            handle,
            can_encrypt: has(AttributeType::Encrypt) && has(AttributeType::Decrypt),
            can_wrap: has(AttributeType::Wrap) && has(AttributeType::Unwrap),
            label: String::new(),
            id: Vec::new(),
            is_kept: has(AttributeType::Sensitive)
                && flag(AttributeType::Extractable) == Some(false),
        };
        let named = self.session.get_attributes(handle, &[AttributeType::Label, AttributeType::Id]);
        for value in named.unwrap_or_default() {
            match value {
                Attribute::Label(label) => key.label = String::from_utf8_lossy(&label).into_owned(),
                Attribute::Id(id) => key.id = id,
                _ => {}
            }
        }
        Ok(key)
    }
}

impl Key {
    /// Refuses a key that the token would give out: pgseal wraps nothing under it.
    pub(crate) fn expect_kept(&self) -> Result<(), Failure<'static>> {
        if self.is_kept {
            return Ok(());
        }
        Err(configuration(
            "the token would give this key out (CKA_SENSITIVE is not true, or CKA_EXTRACTABLE is \
             not false); make a key that stays in the token",
        ))
    }

    /// The key for people: label and id.
    pub(crate) fn shown(&self) -> String {
        let printable = |c: char| if c.is_control() { '?' } else { c };
        let label: String = self.label.chars().take(64).map(printable).collect();
        let id: String = self.id.iter().take(32).map(|byte| format!("{byte:02x}")).collect();
        format!("object {label}, id {id}")
    }
}

fn find_token(module: &Pkcs11, uri: &Uri) -> Result<(Slot, TokenInfo), Failure<'static>> {
    let slots = module.get_slots_with_initialized_token().map_err(failed("no look for tokens"))?;
    let mut seen = Vec::new();
    let mut found = Vec::new();
    for slot in slots {
        let info = match module.get_token_info(slot) {
            Ok(info) => info,
            // Taken away since.
            Err(Error::Pkcs11(RvError::TokenNotPresent | RvError::DeviceRemoved, _)) => continue,
            Err(error) => return Err(failed("no look at a token")(error)),
        };
        let is = |wanted: &Option<String>, have: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == have.trim_end())
        };
        seen.push(info.label().trim_end().to_owned());
        if is(&uri.token, info.label())
            && is(&uri.manufacturer, info.manufacturer_id())
            && is(&uri.model, info.model())
            && is(&uri.serial, info.serial_number())
            && uri.slot.is_none_or(|wanted| wanted == slot.id())
        {
            found.push((slot, info));
        }
    }
    match (found.pop(), found.len()) {
        (Some(only), 0) => Ok(only),
        (Some(_), others) => {
            Err(configuration(format!("the URI describes {} tokens; add serial=", others + 1)))
        }
        (None, _) => {
            let here = match seen.is_empty() {
                true => "there is none".to_owned(),
                false => format!("there are: {}", seen.join(", ")),
            };
            // A token that was taken away, or a module that lost its network, may come back.
            Err(Failure::new(
                Fault::Unavailable,
                format!("no token that the URI describes is there ({here})"),
            ))
        }
    }
}

fn log_in_to_token(module: &Pkcs11, uri: &Uri) -> Result<(Slot, TokenInfo, Session), NotOpened> {
    let (slot, info) = find_token(module, uri)?;
    let session = module.open_ro_session(slot).map_err(failed("no session with the token"))?;
    match &uri.pin_source {
        Some(path) => log_in(&session, &info, path)?,
        None if info.login_required() => {
            return Err(configuration(
                "the token wants a PIN: put it into a file of mode 600, and add \
                 pin-source=/PATH behind the ? of the URI",
            )
            .into());
        }
        None => {}
    }
    Ok((slot, info, session))
}

fn log_in(session: &Session, info: &TokenInfo, path: &Path) -> Result<(), NotOpened> {
    if info.user_pin_final_try() && !info.user_pin_locked() {
        return Err(pin::last_try().into());
    }
    match session.login(UserType::User, Some(&pin::read(path)?)) {
        // Another session of this process; there is none, but some libraries say so.
        Ok(()) | Err(Error::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => Ok(()),
        // The token's library has compared no PIN, so another try costs none of the token's tries.
        Err(error @ Error::Pkcs11(RvError::UserPinNotInitialized, _)) => {
            Err(NotOpened::Passing(failed("the login failed")(error)))
        }
        Err(error) => Err(failed("the login failed")(error).into()),
    }
}
