//! `pgseal-provider-tpm2`: the plugin `tpm2:`. The machine's TPM 2.0 seals the key of a keyring, so
//! that no other TPM opens it (`docs/key-stores.md`). The plugin runs the programs of tpm2-tools,
//! and links no library of the TPM Software Stack.
//!
//! Names and numbers are those of the TCG TPM 2.0 Library, Part 2 (Structures) and Part 3
//! (Commands).

#![forbid(unsafe_code)]

mod anchor;
mod attributes;
mod blob;
mod child;
mod codes;
mod handle;
mod key;
mod lock;
mod nv;
mod pcrs;
mod scratch;
mod tcti;
mod tools;
mod uri;

use std::process::ExitCode;

use pgseal_plugin::{Anchor, AnchorState, Description, Failure, Fault, Plugin, Secret, WrappedKey};

use crate::key::Sealer;
use crate::tools::Tools;
use crate::uri::Uri;

/// The plugin.
struct Tpm2;

impl Plugin for Tpm2 {
    fn describe(&self, uri: &str) -> Result<Description, Failure<'static>> {
        let uri = Uri::parse(uri)?;
        let tools = Tools::open(&uri)?;
        let store = key::maker(&tools)?;
        let key = Sealer::new(&uri, &tools)?.describe()?;
        let mut operations = vec!["describe", "wrap", "unwrap"];
        if let Some(index) = uri.anchor {
            anchor::expect_usable(&tools, index)?;
            operations.extend(["anchor-read", "anchor-advance"]);
        }
        Ok(Description {
            name: "tpm2".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            operations: operations.into_iter().map(str::to_owned).collect(),
            store,
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
        Sealer::new(&uri, &Tools::open(&uri)?)?.seal(context, secret)
    }

    fn unwrap(
        &self,
        uri: &str,
        context: &[u8; 16],
        wrapped: &[u8],
        _key: &str,
    ) -> Result<Secret, Failure<'static>> {
        let uri = Uri::parse(uri)?;
        // What the plugin never made is not sent to the TPM.
        let blob = blob::decoded(wrapped)?;
        Sealer::new(&uri, &Tools::open(&uri)?)?.unseal(context, &blob)
    }

    fn anchor_read(&self, uri: &str, context: &[u8; 16]) -> Result<AnchorState, Failure<'static>> {
        let uri = Uri::parse(uri)?;
        let index = uri.anchor.ok_or_else(no_anchors)?;
        Ok(AnchorState { anchor: anchor::read(&Tools::open(&uri)?, index, context)? })
    }

    fn anchor_advance(
        &self,
        uri: &str,
        context: &[u8; 16],
        anchor: &Anchor,
    ) -> Result<(), Failure<'static>> {
        let uri = Uri::parse(uri)?;
        let index = uri.anchor.ok_or_else(no_anchors)?;
        anchor::advance(&Tools::open(&uri)?, index, context, anchor)
    }
}

fn no_anchors() -> Failure<'static> {
    Failure::new(Fault::Unsupported, "this URI names no place for anchors: add anchor=0x1800016")
}

fn main() -> ExitCode {
    pgseal_plugin::serve(&Tpm2)
}
