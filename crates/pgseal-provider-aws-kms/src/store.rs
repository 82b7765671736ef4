//! AWS KMS through its SDK.

use std::time::Duration;

use aws_config::BehaviorVersion;
use aws_config::Region;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_kms::Client;
use aws_sdk_kms::primitives::Blob;
use aws_sdk_kms::types::{KeySpec, KeyState, KeyUsageType};
use pgseal_plugin::{Failure, Fault, MAX_WRAPPED_LEN, Secret, WrappedKey, configuration, random};
use tokio::runtime::{Builder, Runtime};
use zeroize::Zeroizing;

use crate::failures::of_sdk;
use crate::uri::{Key, Uri};

/// How long one operation may take, with finding credentials. pgseal stops the plugin after 15 s.
const OPERATION: Duration = Duration::from_secs(9);
/// How long one connection may take to be made.
const CONNECT: Duration = Duration::from_secs(4);
/// The name of the encryption context, whose value is the identity of the keyring. Policies may
/// name it.
const CONTEXT: &str = "pgseal-keyring";

/// A client of KMS, and the runtime on which it runs.
pub(crate) struct Store {
    runtime: Runtime,
    client: Client,
    key: Key,
    place: String,
}

impl Store {
    /// A client, configured by the URI and as the SDK finds the rest.
    pub(crate) fn open(uri: Uri) -> Result<Store, Failure<'static>> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::new(Fault::Unavailable, format!("no runtime: {error}")))?;
        let timeouts =
            TimeoutConfig::builder().connect_timeout(CONNECT).operation_timeout(OPERATION).build();
        // pgseal itself asks again.
        let mut loader = aws_config::defaults(BehaviorVersion::latest())
            .timeout_config(timeouts)
            .retry_config(RetryConfig::disabled());
        if let Some(region) = uri.region {
            loader = loader.region(Region::new(region));
        }
        if let Some(profile) = uri.profile {
            loader = loader.profile_name(profile);
        }
        if let Some(endpoint) = uri.endpoint {
            loader = loader.endpoint_url(endpoint);
        }
        let config = runtime.block_on(loader.load());
        let Some(region) = config.region() else {
            return Err(configuration("no region: add region=NAME, or set AWS_REGION"));
        };
        let place = match config.endpoint_url() {
            Some(endpoint) => format!("AWS KMS, {region}, {endpoint}"),
            None => format!("AWS KMS, {region}"),
        };
        let client = Client::new(&config);
        Ok(Store { runtime, client, key: uri.key, place })
    }

    /// The store, for people.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// The ARN of the key, if it may wrap.
    pub(crate) fn describe(&self) -> Result<Key, Failure<'static>> {
        let key = &self.key;
        let asked = self.client.describe_key().key_id(key.as_str()).send();
        let answer = self
            .runtime
            .block_on(asked)
            .map_err(|error| of_sdk(&error, key.as_str(), "kms:DescribeKey"))?;
        let unknown = || configuration(format!("{key}: what answers is not AWS KMS"));
        let metadata = answer.key_metadata().ok_or_else(unknown)?;
        match metadata.key_state() {
            Some(KeyState::Enabled) | None => {}
            Some(KeyState::Unavailable | KeyState::Creating | KeyState::Updating) => {
                return Err(Failure::new(
                    Fault::Unavailable,
                    format!("{key}: the key cannot be reached now"),
                ));
            }
            Some(state) => {
                let state = state.as_str();
                return Err(Failure::new(
                    Fault::KeyGone,
                    format!(
                        "{key}: the key has the state {state}; enable it, or cancel its deletion"
                    ),
                ));
            }
        }
        let is_symmetric =
            metadata.key_spec().is_none_or(|spec| *spec == KeySpec::SymmetricDefault);
        let encrypts =
            metadata.key_usage().is_none_or(|usage| *usage == KeyUsageType::EncryptDecrypt);
        if !is_symmetric || !encrypts {
            return Err(configuration(format!(
                "{key}: the key must be symmetric (SYMMETRIC_DEFAULT), to encrypt and decrypt"
            )));
        }
        Key::returned(metadata.arn()).ok_or_else(unknown)
    }

    /// Wraps a key.
    pub(crate) fn wrap(
        &self,
        context: &[u8; 16],
        secret: &Secret,
    ) -> Result<WrappedKey, Failure<'static>> {
        let key = &self.key;
        let asked = self
            .client
            .encrypt()
            .key_id(key.as_str())
            .encryption_context(CONTEXT, hex(context))
            .plaintext(Blob::new(*secret.expose()))
            .send();
        let answer = self
            .runtime
            .block_on(asked)
            .map_err(|error| of_sdk(&error, key.as_str(), "kms:Encrypt"))?;
        let arn = Key::returned(answer.key_id());
        let wrapped = answer.ciphertext_blob.map(Blob::into_inner);
        match (arn, wrapped.filter(|wrapped| (1..=MAX_WRAPPED_LEN).contains(&wrapped.len()))) {
            (Some(arn), Some(wrapped)) => Ok(WrappedKey { wrapped, key: arn.to_string() }),
            _ => Err(configuration(format!("{key}: what answers is not AWS KMS"))),
        }
    }

    /// Unwraps a key, with the key of the URI and no other one: what lies in a data directory could
    /// have been encrypted under a key of an attacker's account. Only if an alias names another key
    /// by now, the one that `hint` names is taken, of the same account and region.
    pub(crate) fn unwrap(
        &self,
        context: &[u8; 16],
        wrapped: &[u8],
        hint: &str,
    ) -> Result<Secret, Failure<'static>> {
        match self.decrypt(&self.key, context, wrapped) {
            Err(failure) if failure.kind == Fault::Wrong && self.key.is_alias() => {
                let now = self.describe()?;
                match now.sibling(hint).filter(|hinted| *hinted != now) {
                    Some(hinted) => self.decrypt(&hinted, context, wrapped),
                    None => Err(failure),
                }
            }
            other => other,
        }
    }

    /// Decrypts. KMS denies access also to what no key of its encrypted; then what the key encrypts
    /// now decides whether a right is missing.
    fn decrypt(
        &self,
        key: &Key,
        context: &[u8; 16],
        wrapped: &[u8],
    ) -> Result<Secret, Failure<'static>> {
        match self.ask_to_decrypt(key, context, wrapped) {
            Err(failure) if failure.kind == Fault::Refused => {
                let probe = Secret::init_with(|out| random(out))?;
                let wrapped = self.wrap(context, &probe).map_err(|_| failure.clone())?;
                self.ask_to_decrypt(&self.key, context, &wrapped.wrapped)?;
                Err(Failure::new(
                    Fault::Wrong,
                    format!("{key}: the key does not open this ({})", failure.message),
                ))
            }
            other => other,
        }
    }

    fn ask_to_decrypt(
        &self,
        key: &Key,
        context: &[u8; 16],
        wrapped: &[u8],
    ) -> Result<Secret, Failure<'static>> {
        let asked = self
            .client
            .decrypt()
            .key_id(key.as_str())
            .encryption_context(CONTEXT, hex(context))
            .ciphertext_blob(Blob::new(wrapped))
            .send();
        let answer = self
            .runtime
            .block_on(asked)
            .map_err(|error| of_sdk(&error, key.as_str(), "kms:Decrypt"))?;
        let text = Zeroizing::new(answer.plaintext.map(Blob::into_inner).unwrap_or_default());
        let bytes: &[u8; 32] = (&**text).try_into().map_err(|_| {
            Failure::new(Fault::Wrong, format!("{key}: what it opens is no key of 32 bytes"))
        })?;
        Secret::init_with(|out| {
            out.copy_from_slice(bytes);
            Ok(())
        })
    }
}

fn hex(context: &[u8; 16]) -> String {
    context.iter().map(|byte| format!("{byte:02x}")).collect()
}
