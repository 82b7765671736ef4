//! `pgseal-provider-kmip`: the plugin `kmip:`. A key that stays in a server of KMIP (OASIS Key
//! Management Interoperability Protocol, 1.2 to 2.1) wraps the key of a keyring
//! (`docs/key-stores.md`).

#![forbid(unsafe_code)]

mod connection;
mod failures;
mod id;
mod message;
mod session;
mod ttlv;
mod uri;
mod wrapped;

use std::process::ExitCode;

use pgseal_plugin::{Description, Failure, Plugin, Secret, WrappedKey};

use crate::id::Id;
use crate::session::Session;
use crate::uri::{Target, Uri};
use crate::wrapped::Wrapped;

/// The plugin.
struct Kmip;

impl Plugin for Kmip {
    fn describe(&self, uri: &str) -> Result<Description, Failure<'static>> {
        let uri = Uri::parse(uri)?;
        let mut session = Session::open(&uri)?;
        let id = session.find(&uri.target)?;
        session.works(&id)?;
        Ok(Description {
            name: "kmip".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            operations: ["describe", "wrap", "unwrap"].map(str::to_owned).to_vec(),
            store: session.store(),
            key: key_name(&uri.target, &id),
            binds_context: true,
        })
    }

    fn wrap(
        &self,
        uri: &str,
        context: &[u8; 16],
        secret: &Secret,
    ) -> Result<WrappedKey, Failure<'static>> {
        let uri = Uri::parse(uri)?;
        let mut session = Session::open(&uri)?;
        let id = session.find(&uri.target)?;
        let wrapped = wrapped::wrap(&mut session, &id, context, secret)?;
        Ok(WrappedKey { wrapped, key: key_name(&uri.target, &id) })
    }

    fn unwrap(
        &self,
        uri: &str,
        context: &[u8; 16],
        wrapped: &[u8],
        key: &str,
    ) -> Result<Secret, Failure<'static>> {
        let uri = Uri::parse(uri)?;
        // What this plugin never made is not sent to the store.
        let wrapped = Wrapped::parse(wrapped)?;
        let mut session = Session::open(&uri)?;
        let id = match hinted(&uri.target, key) {
            Some(id) => id,
            None => session.find(&uri.target)?,
        };
        wrapped::unwrap(&mut session, &id, context, &wrapped)
    }
}

/// The name of a key that [`hinted`] reads.
fn key_name(target: &Target, id: &Id) -> String {
    match target {
        Target::Id(_) => format!("id {id}"),
        Target::Name(name) => format!("name {name}, id {id}"),
    }
}

/// The key that wrapped, where the URI names keys by a name: another one may have the name by now.
/// The hint is not authenticated: at worst a key of the same user does not open the wrapped key.
fn hinted(target: &Target, hint: &str) -> Option<Id> {
    match target {
        Target::Id(_) => None,
        Target::Name(name) => hint.strip_prefix(&format!("name {name}, id ")).and_then(Id::parse),
    }
}

fn main() -> ExitCode {
    pgseal_plugin::serve(&Kmip)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_name_of_a_key_tells_its_identifier() {
        let id = |text: &str| Id::parse(text).unwrap();
        let name = Target::Name(id("pg, id 3"));
        assert_eq!(hinted(&name, &key_name(&name, &id("a b"))), Some(id("a b")));
        assert_eq!(hinted(&name, "name other, id 7"), None);
        assert_eq!(hinted(&name, "name pg, id 3, id "), None);
        let by_id = Target::Id(id("7"));
        assert_eq!(key_name(&by_id, &id("7")), "id 7");
        assert_eq!(hinted(&by_id, "id 8"), None);
        // With the longest of both, the protocol still takes it.
        let longest = id(&"x".repeat(200));
        let name = Target::Name(longest.clone());
        assert!(key_name(&name, &longest).len() <= pgseal_plugin::MAX_KEY_NAME_LEN);
    }
}
