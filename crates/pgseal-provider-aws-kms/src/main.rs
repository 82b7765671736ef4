//! `pgseal-provider-aws-kms`: the plugin `aws-kms:`. A key of the AWS Key Management Service wraps
//! the key of a keyring, with the identity of the keyring as encryption context
//! (`docs/key-stores.md`).
//!
//! Keys are wiped here. The buffers of the SDK are not: they live as long as the process, which is
//! one request of pgseal, and which leaves no core dump.

#![forbid(unsafe_code)]

mod failures;
mod store;
mod uri;

use std::process::ExitCode;

use pgseal_plugin::{Description, Failure, Plugin, Secret, WrappedKey};

use crate::store::Store;
use crate::uri::Uri;

/// The plugin.
struct AwsKms;

impl Plugin for AwsKms {
    fn describe(&self, uri: &str) -> Result<Description, Failure<'static>> {
        let store = Store::open(Uri::parse(uri)?)?;
        let key = store.describe()?;
        Ok(Description {
            name: "aws-kms".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            operations: ["describe", "wrap", "unwrap"].map(str::to_owned).to_vec(),
            store: store.place().to_owned(),
            key: key.to_string(),
            binds_context: true,
        })
    }

    fn wrap(
        &self,
        uri: &str,
        context: &[u8; 16],
        secret: &Secret,
    ) -> Result<WrappedKey, Failure<'static>> {
        Store::open(Uri::parse(uri)?)?.wrap(context, secret)
    }

    fn unwrap(
        &self,
        uri: &str,
        context: &[u8; 16],
        wrapped: &[u8],
        key: &str,
    ) -> Result<Secret, Failure<'static>> {
        Store::open(Uri::parse(uri)?)?.unwrap(context, wrapped, key)
    }
}

fn main() -> ExitCode {
    pgseal_plugin::serve(&AwsKms)
}
