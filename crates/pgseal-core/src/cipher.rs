//! The cipher of one file: its key schedule, and the sealing of single blocks
//! (`spec/sealed-file.md`, section 5).

use pgseal_crypto::{AegisKey, AegisNonce, Gcm, NonceBytes, Service, TagBytes};

use crate::error::SealError;
use crate::evp::{Ctr, Gmac, Xts};
use crate::header::{FORMAT_VERSION, FileId, FileKey, Header};
use crate::memory::KeyBytes;
use crate::suite::{Layout, Suite};
use crate::units::BlockNo;

/// Bytes of the associated data of a block.
const AAD_LEN: usize = 32;

enum Kind {
    Gcm(Gcm),
    Ctr(Ctr),
    Xts(Xts),
    Aegis(KeyBytes<32>),
}

/// The number under which flush records are authenticated; no page has it.
const RECORD: BlockNo = BlockNo(u64::MAX);

/// The ready key schedules of one file.
pub(crate) struct Cipher {
    kind: Kind,
    /// The MAC of a file of the WAL layout.
    mac: Option<Gmac>,
    aad: [u8; AAD_LEN],
}

/// The block does not authenticate.
pub(crate) struct NotAuthentic;

impl Cipher {
    pub(crate) fn new(header: &Header, key: &FileKey) -> Result<Cipher, SealError> {
        let mac = match header.layout {
            Layout::Wal => Some(Gmac::new(&key[..])?),
            _ => None,
        };
        let key = key.get(..header.suite.key_len()).ok_or(SealError::Cipher("key length"))?;
        let kind = match header.suite {
            Suite::Aes128Gcm | Suite::Aes256Gcm => Kind::Gcm(Gcm::new(key)?),
            Suite::Aes128Xts | Suite::Aes256Xts => Kind::Xts(Xts::new(key)?),
            Suite::Aes128Ctr | Suite::Aes192Ctr | Suite::Aes256Ctr => Kind::Ctr(Ctr::new(key)?),
            Suite::Aegis256X2 => Kind::Aegis(aegis_key(key)?),
        };
        Ok(Cipher { kind, mac, aad: block_aad(header, &header.file_id) })
    }

    /// The XTS cipher of an in-place file or of WAL.
    pub(crate) fn xts(&mut self) -> Result<&mut Xts, SealError> {
        match &mut self.kind {
            Kind::Xts(xts) => Ok(xts),
            _ => Err(SealError::Cipher("not an XTS file")),
        }
    }

    /// Makes the tag of a page of the WAL layout, over its stored cells. In a FIPS build, `nonce`
    /// is replaced.
    pub(crate) fn page_mac(
        &mut self,
        block: BlockNo,
        nonce: &mut NonceBytes,
        cells: &[u8],
    ) -> Result<TagBytes, SealError> {
        let aad = aad_for(self.aad, block);
        let mac = self.mac.as_mut().ok_or(SealError::Cipher("not a WAL file"))?;
        mac.tag(nonce, &aad, cells)
    }

    /// Whether this is the tag of a page of the WAL layout with these stored cells.
    pub(crate) fn page_fits(
        &mut self,
        block: BlockNo,
        nonce: NonceBytes,
        tag: &TagBytes,
        cells: &[u8],
    ) -> Result<bool, SealError> {
        let aad = aad_for(self.aad, block);
        let mac = self.mac.as_mut().ok_or(SealError::Cipher("not a WAL file"))?;
        mac.fits(nonce, tag, &aad, cells)
    }

    /// Makes the tag of the fields of a flush record. In a FIPS build, `nonce` is replaced.
    pub(crate) fn record_mac(
        &mut self,
        nonce: &mut NonceBytes,
        fields: &[u8; 16],
    ) -> Result<TagBytes, SealError> {
        self.page_mac(RECORD, nonce, fields)
    }

    /// Whether this is the tag of these fields of a flush record.
    pub(crate) fn record_fits(
        &mut self,
        nonce: NonceBytes,
        tag: &TagBytes,
        fields: &[u8; 16],
    ) -> Result<bool, SealError> {
        self.page_fits(RECORD, nonce, tag, fields)
    }

    /// Seals a block of 1 to 8192 bytes from `plain` into `sealed`, of the same length, with the
    /// random bytes `nonce` ([`Suite::nonce_len`]). The tag is zeros for a suite that does not
    /// authenticate. In a FIPS build, `nonce` is replaced if the suite is one of AES-GCM.
    pub(crate) fn seal_block(
        &mut self,
        block: BlockNo,
        nonce: &mut [u8],
        plain: &[u8],
        sealed: &mut [u8],
    ) -> Result<TagBytes, SealError> {
        let aad = aad_for(self.aad, block);
        match &mut self.kind {
            Kind::Gcm(key) => Ok(key.seal_between(of_96_bits(nonce)?, &aad, plain, sealed)?),
            Kind::Ctr(ctr) => ctr.seal(*of_96_bits(nonce)?, plain, sealed).map(|()| [0; 16]),
            Kind::Aegis(key) => {
                let nonce = aegis_nonce(nonce, &aad).ok_or(NONCE_LENGTH)?;
                Ok(pgseal_crypto::seal_aegis(key, &nonce, &aad, plain, sealed)?)
            }
            Kind::Xts(_) => Err(SealError::Cipher("XTS has no nonce")),
        }
    }

    /// Opens a block in place. On failure the contents of `data` are unspecified.
    pub(crate) fn open_block(
        &mut self,
        block: BlockNo,
        nonce: &[u8],
        tag: &TagBytes,
        data: &mut [u8],
    ) -> Result<(), NotAuthentic> {
        let aad = aad_for(self.aad, block);
        let of_96_bits = || nonce.try_into().map_err(|_| NotAuthentic);
        match &mut self.kind {
            Kind::Gcm(key) => key.open(of_96_bits()?, &aad, tag, data).map_err(|_| NotAuthentic),
            Kind::Ctr(ctr) => ctr.open(*of_96_bits()?, data).map_err(|_| NotAuthentic),
            Kind::Aegis(key) => {
                let nonce = aegis_nonce(nonce, &aad).ok_or(NotAuthentic)?;
                pgseal_crypto::open_aegis(key, &nonce, &aad, tag, data).map_err(|_| NotAuthentic)
            }
            Kind::Xts(_) => Err(NotAuthentic),
        }
    }

    /// Opens a block from `sealed` into `plain`, of the same length. On failure the contents of
    /// `plain` are unspecified.
    pub(crate) fn open_block_between(
        &mut self,
        block: BlockNo,
        nonce: &[u8],
        (sealed, tag): (&[u8], &TagBytes),
        plain: &mut [u8],
    ) -> Result<(), NotAuthentic> {
        if let Kind::Gcm(key) = &self.kind {
            let aad = aad_for(self.aad, block);
            let nonce = nonce.try_into().map_err(|_| NotAuthentic)?;
            return key.open_between(nonce, &aad, (sealed, tag), plain).map_err(|_| NotAuthentic);
        }
        if plain.len() != sealed.len() {
            return Err(NotAuthentic);
        }
        plain.copy_from_slice(sealed);
        self.open_block(block, nonce, tag, plain)
    }
}

const NONCE_LENGTH: SealError = SealError::Cipher("nonce length");

fn of_96_bits(nonce: &mut [u8]) -> Result<&mut NonceBytes, SealError> {
    nonce.try_into().map_err(|_| NONCE_LENGTH)
}

/// The key of AEGIS, in the memory for keys.
fn aegis_key(file_key: &[u8]) -> Result<KeyBytes<{ size_of::<AegisKey>() }>, SealError> {
    pgseal_crypto::check(Service::Aegis)?;
    let mut key = KeyBytes::zeros()?;
    key.copy_from_slice(file_key);
    Ok(key)
}

/// The nonce of AEGIS: the random bytes, then a zero, the block number, and the first half of the
/// file id. `None` if there are not as many random bytes as it needs.
fn aegis_nonce(random: &[u8], aad: &[u8; AAD_LEN]) -> Option<AegisNonce> {
    let mut nonce = [0; size_of::<AegisNonce>()];
    let random: &[u8; 15] = random.try_into().ok()?;
    nonce[..15].copy_from_slice(random);
    nonce[16..24].copy_from_slice(&aad[16..24]);
    nonce[24..].copy_from_slice(&aad[..8]);
    Some(nonce)
}

/// File id, block number (0 here), version, suite, layout, zeros.
fn block_aad(header: &Header, file_id: &FileId) -> [u8; AAD_LEN] {
    let mut aad = [0; AAD_LEN];
    aad[..16].copy_from_slice(file_id);
    aad[24..26].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    aad[26..28].copy_from_slice(&header.suite.id().to_le_bytes());
    aad[28..30].copy_from_slice(&header.layout.id().to_le_bytes());
    aad
}

fn aad_for(mut aad: [u8; AAD_LEN], block: BlockNo) -> [u8; AAD_LEN] {
    aad[16..24].copy_from_slice(&block.0.to_le_bytes());
    aad
}
