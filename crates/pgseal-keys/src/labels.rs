//! All labels, the strings that separate one use of a key from another.
//!
//! A test compares this table with that of `spec/key-hierarchy.md`, section 4. A label is never
//! changed, and never used for a second purpose.

/// HKDF info: the KEK to the key of the key check value.
pub const KDF_KEK_CHECK: &str = "pgseal/v1/kdf/kek-check";
/// HMAC message: the key check value itself.
pub const MAC_KEK_CHECK: &str = "pgseal/v1/mac/kek-check";
/// AES-GCM associated data: the keyring key under the KEK.
pub const AAD_KEYRING_KEY: &str = "pgseal/v1/aad/keyring-key";
/// AES-GCM associated data: the keyring key under the KEK of a recipient.
pub const AAD_RECIPIENT: &str = "pgseal/v1/aad/recipient";
/// HKDF info: the keyring key to the key of the keyring's MAC.
pub const KDF_KEYRING_MAC: &str = "pgseal/v1/kdf/keyring-mac";
/// HKDF info: the keyring key to the key that wraps data keys.
pub const KDF_DATA_KEY_WRAP: &str = "pgseal/v1/kdf/data-key-wrap";
/// AES-GCM associated data: a data key under the wrapping key.
pub const AAD_DATA_KEY: &str = "pgseal/v1/aad/data-key";

/// HKDF info: the escrow secret to the key of an escrow copy.
pub const KDF_ESCROW_WRAP: &str = "pgseal/v1/kdf/escrow-wrap";
/// AES-GCM associated data: an escrow copy.
pub const AAD_ESCROW_COPY: &str = "pgseal/v1/aad/escrow-copy";
/// HKDF info: a data key to the key of its fingerprint.
pub const KDF_KEY_FINGERPRINT: &str = "pgseal/v1/kdf/key-fingerprint";
/// HMAC message: the fingerprint itself.
pub const MAC_KEY_FINGERPRINT: &str = "pgseal/v1/mac/key-fingerprint";

/// HKDF info: a data key to the key of the configuration record.
pub const KDF_CONFIG_RECORD: &str = "pgseal/v1/kdf/config-record";
/// AES-GCM associated data: the configuration record.
pub const AAD_CONFIG_RECORD: &str = "pgseal/v1/aad/config-record";

/// HKDF info: a data key to the key of the manifest.
pub const KDF_MANIFEST: &str = "pgseal/v1/kdf/manifest";
/// AES-GCM associated data: the manifest.
pub const AAD_MANIFEST: &str = "pgseal/v1/aad/manifest";

/// HKDF info: a data key to a key of the control record.
pub const KDF_CONTROL: &str = "pgseal/v1/kdf/control";
/// AES-GCM associated data: a part of the control record.
pub const AAD_CONTROL: &str = "pgseal/v1/aad/control";

/// HKDF info: a data key to the key of the renewal file.
pub const KDF_RENEWAL: &str = "pgseal/v1/kdf/renewal";
/// AES-GCM associated data: the renewal file.
pub const AAD_RENEWAL: &str = "pgseal/v1/aad/renewal";

/// HKDF info: a data key to the key of the audit trail's MACs.
pub const KDF_AUDIT: &str = "pgseal/v1/kdf/audit";

/// HKDF info: a data key to the KEK of column keys, where a keyring gives it.
pub const KDF_COLUMNS_KEK: &str = "pgseal/v1/kdf/columns-kek";

/// Every label, in the order of the specification.
pub const ALL: [&str; 21] = [
    KDF_KEK_CHECK,
    MAC_KEK_CHECK,
    AAD_KEYRING_KEY,
    AAD_RECIPIENT,
    KDF_KEYRING_MAC,
    KDF_DATA_KEY_WRAP,
    AAD_DATA_KEY,
    KDF_ESCROW_WRAP,
    AAD_ESCROW_COPY,
    KDF_KEY_FINGERPRINT,
    MAC_KEY_FINGERPRINT,
    KDF_CONFIG_RECORD,
    AAD_CONFIG_RECORD,
    KDF_MANIFEST,
    AAD_MANIFEST,
    KDF_CONTROL,
    AAD_CONTROL,
    KDF_RENEWAL,
    AAD_RENEWAL,
    KDF_AUDIT,
    KDF_COLUMNS_KEK,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_label_is_a_prefix_of_another() {
        for (at, label) in ALL.iter().enumerate() {
            for (other_at, other) in ALL.iter().enumerate() {
                assert!(
                    at == other_at || !other.starts_with(label),
                    "{label} is a prefix of {other}"
                );
            }
        }
    }

    #[test]
    fn the_specification_has_the_same_table() {
        let spec = include_str!("../../../spec/key-hierarchy.md");
        let listed: Vec<&str> = spec
            .lines()
            .filter_map(|line| line.strip_prefix("| `pgseal/v1/"))
            .filter_map(|rest| rest.split('`').next())
            .collect();
        let known: Vec<&str> =
            ALL.iter().filter_map(|label| label.strip_prefix("pgseal/v1/")).collect();
        assert_eq!(listed, known);
    }
}
