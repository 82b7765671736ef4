//! Key-exchange groups: their code points (IANA's TLS registry) and OpenSSL's names.

/// One group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// Code point.
    pub id: u16,
    /// OpenSSL's name, as `ssl_groups` and `ssl_ecdh_curve` take it.
    pub name: &'static str,
    /// Whether the group contains ML-KEM (FIPS 203), which resists quantum computers.
    pub post_quantum: bool,
    /// Approximate security in bits against classical computers.
    pub bits: u16,
}

const fn group(id: u16, name: &'static str, post_quantum: bool, bits: u16) -> Group {
    Group { id, name, post_quantum, bits }
}

/// The groups that are probed.
pub const GROUPS: &[Group] = &[
    group(0x11ec, "X25519MLKEM768", true, 128),
    group(0x11eb, "SecP256r1MLKEM768", true, 128),
    group(0x11ed, "SecP384r1MLKEM1024", true, 192),
    group(0x0200, "MLKEM512", true, 128),
    group(0x0201, "MLKEM768", true, 192),
    group(0x0202, "MLKEM1024", true, 256),
    group(0x001d, "X25519", false, 128),
    group(0x0017, "prime256v1", false, 128),
    group(0x001e, "X448", false, 224),
    group(0x0018, "secp384r1", false, 192),
    group(0x0019, "secp521r1", false, 256),
    group(0x001f, "brainpoolP256r1tls13", false, 128),
    group(0x0020, "brainpoolP384r1tls13", false, 192),
    group(0x0021, "brainpoolP512r1tls13", false, 256),
    group(0x001a, "brainpoolP256r1", false, 128),
    group(0x001b, "brainpoolP384r1", false, 192),
    group(0x001c, "brainpoolP512r1", false, 256),
    group(0x0100, "ffdhe2048", false, 112),
    group(0x0101, "ffdhe3072", false, 128),
    group(0x0102, "ffdhe4096", false, 152),
    group(0x0103, "ffdhe6144", false, 176),
    group(0x0104, "ffdhe8192", false, 192),
    group(0x0016, "secp256k1", false, 128),
    group(0x0015, "secp224r1", false, 112),
    group(0x0013, "prime192v1", false, 96),
];

/// The group with this code point.
pub fn by_id(id: u16) -> Option<&'static Group> {
    GROUPS.iter().find(|group| group.id == id)
}

/// OpenSSL's name, or the code point in hexadecimal digits.
pub fn name_of(id: u16) -> String {
    by_id(id).map_or_else(|| format!("{id:#06x}"), |group| group.name.to_owned())
}
