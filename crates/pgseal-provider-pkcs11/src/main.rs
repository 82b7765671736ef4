//! `pgseal-provider-pkcs11`: the plugin `pkcs11:`. A hardware security module or smart card wraps
//! the key of a keyring with an AES key that never leaves it (PKCS #11). The URI is that of RFC
//! 7512 (`docs/key-stores.md`).

#![forbid(unsafe_code)]

mod failures;
mod pin;
mod token;
mod uri;
mod wrapped;

use std::process::ExitCode;

use pgseal_plugin::{Description, Failure, Plugin, Secret, WrappedKey};

use crate::token::OpenToken;
use crate::uri::Uri;
use crate::wrapped::Mechanism;

/// The plugin.
struct Pkcs11;

impl Plugin for Pkcs11 {
    fn describe(&self, uri: &str) -> Result<Description, Failure<'static>> {
        let uri = Uri::parse(uri)?;
        let token = OpenToken::open(&uri)?;
        let key = token.key()?;
        let mechanism = Mechanism::choose(&token, &key, uri.mechanism)?;
        key.expect_kept()?;
        Ok(Description {
            name: "pkcs11".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            operations: ["describe", "wrap", "unwrap"].map(str::to_owned).to_vec(),
            store: format!("{}, {}", token.shown(), mechanism.name()),
            key: key.shown(),
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
        let token = OpenToken::open(&uri)?;
        let key = token.key()?;
        // A key that can be read from its token would be the copy in a file that nobody wants.
        key.expect_kept()?;
        let mechanism = Mechanism::choose(&token, &key, uri.mechanism)?;
        let wrapped = wrapped::wrap(&token, &key, mechanism, context, secret)?;
        Ok(WrappedKey { wrapped, key: format!("{}; {}", key.shown(), token.shown()) })
    }

    fn unwrap(
        &self,
        uri: &str,
        context: &[u8; 16],
        wrapped: &[u8],
        _key: &str,
    ) -> Result<Secret, Failure<'static>> {
        let uri = Uri::parse(uri)?;
        let token = OpenToken::open(&uri)?;
        wrapped::unwrap(&token, &token.key()?, context, wrapped)
    }
}

fn main() -> ExitCode {
    pgseal_plugin::serve(&Pkcs11)
}
