//! `pgseal-provider-vault`: the plugin `vault:`. The transit engine of HashiCorp Vault or OpenBao
//! wraps the key of a keyring with a key that never leaves the store; or, weaker, a secret of the
//! engine KV version 2 is that key (`docs/key-stores.md`).

#![forbid(unsafe_code)]

mod address;
mod anchor;
mod failures;
mod files;
mod http;
mod kv;
mod place;
mod reply;
mod session;
mod settings;
mod stored;
mod tls;
mod transit;
mod uri;

use std::process::ExitCode;

use pgseal_plugin::{Anchor, AnchorState, Description, Failure, Fault, Plugin, Secret, WrappedKey};

use crate::session::Session;
use crate::settings::Settings;
use crate::uri::{Target, Uri};

/// The plugin.
struct Vault;

impl Plugin for Vault {
    fn describe(&self, uri: &str) -> Result<Description, Failure<'static>> {
        let uri = Uri::parse(uri)?;
        let session = Session::open(&Settings::of(&uri)?)?;
        let (engine, key) = match &uri.target {
            Target::Transit { mount, key } => transit::describe(&session, mount, key)?,
            Target::Stored(secret) => stored::describe(&session, secret)?,
        };
        let mut operations = vec!["describe", "wrap", "unwrap"];
        if let Some(anchors) = &uri.anchors {
            anchor::expect_there(&session, anchors)?;
            operations.extend(["anchor-read", "anchor-advance"]);
        }
        Ok(Description {
            name: "vault".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            operations: operations.into_iter().map(str::to_owned).collect(),
            store: format!("{}, {engine}", session.store()),
            key,
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
        let session = Session::open(&Settings::of(&uri)?)?;
        match &uri.target {
            Target::Transit { mount, key } => transit::wrap(&session, mount, key, context, secret),
            Target::Stored(place) => stored::wrap(&session, place, context, secret),
        }
    }

    fn unwrap(
        &self,
        uri: &str,
        context: &[u8; 16],
        wrapped: &[u8],
        key: &str,
    ) -> Result<Secret, Failure<'static>> {
        let uri = Uri::parse(uri)?;
        let settings = Settings::of(&uri)?;
        match &uri.target {
            Target::Transit { mount, key } => {
                // What the store never made is not sent to it.
                let ciphertext = transit::Ciphertext::parse(wrapped)?;
                transit::unwrap(&Session::open(&settings)?, mount, key, context, &ciphertext)
            }
            Target::Stored(place) => {
                stored::unwrap(&Session::open(&settings)?, place, context, wrapped, key)
            }
        }
    }

    fn anchor_read(&self, uri: &str, context: &[u8; 16]) -> Result<AnchorState, Failure<'static>> {
        let uri = Uri::parse(uri)?;
        let anchors = uri.anchors.as_ref().ok_or_else(no_anchors)?;
        let session = Session::open(&Settings::of(&uri)?)?;
        Ok(AnchorState { anchor: anchor::read(&session, anchors, context)? })
    }

    fn anchor_advance(
        &self,
        uri: &str,
        context: &[u8; 16],
        anchor: &Anchor,
    ) -> Result<(), Failure<'static>> {
        let uri = Uri::parse(uri)?;
        let anchors = uri.anchors.as_ref().ok_or_else(no_anchors)?;
        let session = Session::open(&Settings::of(&uri)?)?;
        anchor::advance(&session, anchors, context, anchor)
    }
}

fn no_anchors() -> Failure<'static> {
    Failure::new(Fault::Unsupported, "this URI names no place for anchors: add anchor=PATH")
}

fn main() -> ExitCode {
    pgseal_plugin::serve(&Vault)
}
