//! Seals and unseals keys.

use std::fs;

use pgseal_plugin::{Failure, Fault, Secret, WrappedKey, configuration};
use zeroize::Zeroizing;

use crate::attributes::attributes;
use crate::blob::{self, Blob};
use crate::codes;
use crate::pcrs::Pcrs;
use crate::scratch::Scratch;
use crate::tools::{Error, Left, Tools};
use crate::uri::{Parent, Uri};

/// The template of the primary key, in full, because the same template gives the same key until the
/// TPM is cleared: a storage key on the curve P-256 with AES-128-CFB and the attributes of the SRK
/// in the TCG's TPM v2.0 Provisioning Guidance; its unique field is empty. `noda`: its
/// authorization value is empty, so there is nothing to guess.
const TEMPLATE: [&str; 6] = [
    "-g",
    "sha256",
    "-G",
    "ecc256:aes128cfb",
    "-a",
    "fixedtpm|fixedparent|sensitivedataorigin|userwithauth|noda|restricted|decrypt",
];

/// The TPM's maker and firmware, for people.
pub(crate) fn maker(tools: &Tools) -> Result<String, Failure<'static>> {
    let text = tools.run("tpm2_getcap", &["properties-fixed"], b"").map_err(Error::failed)?;
    let text = String::from_utf8_lossy(&text);
    let value = |property: &str, member: &str| {
        let mut lines = text.lines().skip_while(|line| line.trim_end() != property).skip(1);
        let found = lines.by_ref().take_while(|line| line.starts_with(' ')).find_map(|line| {
            let value = line.trim().strip_prefix(member)?.trim().trim_matches('"');
            Some(value.chars().filter(|c| c.is_ascii_graphic()).take(16).collect::<String>())
        });
        found.unwrap_or_else(|| "?".to_owned())
    };
    Ok(format!(
        "TPM 2.0 of {}, firmware {}, {}",
        value("TPM2_PT_MANUFACTURER:", "value:"),
        value("TPM2_PT_FIRMWARE_VERSION_1:", "raw:"),
        tools.tcti().as_str()
    ))
}

/// The key below which the URI wants keys to be sealed, and the policy.
pub(crate) struct Sealer<'a> {
    uri: &'a Uri,
    tools: &'a Tools,
    scratch: Scratch,
}

impl<'a> Sealer<'a> {
    pub(crate) fn new(uri: &'a Uri, tools: &'a Tools) -> Result<Sealer<'a>, Failure<'static>> {
        Ok(Sealer { uri, tools, scratch: Scratch::new()? })
    }

    /// The key for people. Fails if it is not there.
    pub(crate) fn describe(&self) -> Result<String, Failure<'static>> {
        let parent = self.parent()?;
        let public = self.tools.run_and_flush("tpm2_readpublic", &["-c", &parent], Left::Object);
        let public = public.map_err(|error| self.of_parent(error))?;
        let public = String::from_utf8_lossy(&public).into_owned();
        let have = attributes(&public);
        if !["restricted", "decrypt", "fixedtpm"].iter().all(|wanted| have.contains(wanted)) {
            return Err(configuration("the parent is no storage key that stays in this TPM"));
        }
        if let Some(pcrs) = &self.uri.pcrs {
            self.expect_pcrs(pcrs)?;
        }
        Ok(self.shown())
    }

    /// Seals a key for a context.
    pub(crate) fn seal(
        &self,
        context: &[u8; 16],
        secret: &Secret,
    ) -> Result<WrappedKey, Failure<'static>> {
        let parent = self.parent()?;
        let file = |name| self.scratch.file(name);
        let (public, private) = (file("public"), file("private"));
        let mut arguments = vec!["-Q", "-C", &parent, "-g", "sha256", "-i", "-"];
        arguments.extend(["-u", &public, "-r", &private]);
        let policy = file("policy");
        match &self.uri.pcrs {
            None => arguments.extend(["-a", blob::OPEN.names]),
            Some(pcrs) => {
                self.expect_pcrs(pcrs)?;
                let list = pcrs.to_string();
                let make = ["-Q", "--policy-pcr", "-l", &list, "-L", &policy];
                let made = self.tools.run_and_flush("tpm2_createpolicy", &make, Left::Session);
                made.map_err(Error::failed)?;
                arguments.extend(["-a", blob::POLICY.names, "-L", &policy]);
            }
        }
        let sealed = blob::sealed(context, secret);
        let made = self.tools.run("tpm2_create", &arguments, &*sealed);
        made.map_err(|error| self.of_parent(error))?;
        let read = |path: &str| {
            fs::read(path).map_err(|error| {
                Failure::new(Fault::Unavailable, format!("{path}: cannot read it: {error}"))
            })
        };
        let wrapped = blob::encoded(&read(&public)?, &read(&private)?)?;
        Ok(WrappedKey { wrapped, key: self.shown() })
    }

    /// Unseals a key.
    pub(crate) fn unseal(
        &self,
        context: &[u8; 16],
        blob: &Blob<'_>,
    ) -> Result<Secret, Failure<'static>> {
        match (blob.has_policy, &self.uri.pcrs) {
            (true, None) => {
                return Err(configuration("the key was sealed with PCRs; add the same pcrs="));
            }
            (false, Some(_)) => {
                return Err(configuration(
                    "the key was sealed without PCRs; start without pcrs=, and seal it anew with \
                     them: pgseal key rotate DIR -K 'tpm2:...;pcrs=...'",
                ));
            }
            _ => {}
        }
        let parent = self.parent()?;
        let file = |name| self.scratch.file(name);
        let (public, private, object) = (file("public"), file("private"), file("object"));
        for (path, bytes) in [(&public, blob.public), (&private, blob.private)] {
            fs::write(path, bytes).map_err(|error| {
                Failure::new(Fault::Unavailable, format!("{path}: cannot write it: {error}"))
            })?;
        }
        let load = ["-Q", "-C", &parent, "-u", &public, "-r", &private, "-c", &object];
        let loaded = self.tools.run_and_flush("tpm2_load", &load, Left::Object);
        loaded.map_err(|error| self.not_loaded(error))?;
        let auth = self.uri.pcrs.as_ref().map(|pcrs| format!("pcr:{pcrs}"));
        let mut unseal = vec!["-c", &object];
        unseal.extend(auth.iter().flat_map(|auth| ["-p", auth]));
        let unsealed: Zeroizing<Vec<u8>> = self
            .tools
            .run_and_flush("tpm2_unseal", &unseal, Left::Object)
            .map_err(|error| match error.code() == Some(codes::POLICY_FAIL) {
                true => self.other_pcrs(),
                false => error.failure((Fault::Wrong, "the TPM does not unseal it")),
            })?;
        blob::opened(context, &unsealed)
    }

    /// The parent for the option `-C`: its handle, or the file with its context.
    fn parent(&self) -> Result<String, Failure<'static>> {
        let Parent::Owner = self.uri.parent else { return Ok(self.shown_parent()) };
        let context = self.scratch.file("parent");
        let mut arguments = vec!["-Q".to_owned(), "-c".to_owned(), context.clone()];
        arguments.extend(TEMPLATE.map(str::to_owned));
        arguments.extend(self.tools.owner());
        let made = self.tools.run_and_flush("tpm2_createprimary", &arguments, Left::Object);
        made.map_err(Error::failed)?;
        Ok(context)
    }

    /// Fails if a PCR is not there. A policy over it would always hold.
    fn expect_pcrs(&self, pcrs: &Pcrs) -> Result<(), Failure<'static>> {
        let read = self.tools.run("tpm2_pcrread", &[pcrs.to_string()], b"");
        let text = read.map_err(Error::failed)?;
        pcrs.expect_in(&String::from_utf8_lossy(&text))
    }

    fn shown_parent(&self) -> String {
        match self.uri.parent {
            Parent::Owner => "the owner hierarchy".to_owned(),
            Parent::Handle(handle) => format!("{handle:#x}"),
        }
    }

    fn shown(&self) -> String {
        let pcrs = self.uri.pcrs.as_ref();
        let pcrs = pcrs.map_or("without PCRs".to_owned(), |pcrs| format!("PCRs {pcrs}"));
        format!("storage key of {}, {pcrs}", self.shown_parent())
    }

    /// The failure of a program that uses the parent.
    fn of_parent(&self, error: Error) -> Failure<'static> {
        match self.is_gone(&error) {
            true => Failure::new(
                Fault::KeyGone,
                format!("the TPM has no key {}; was it cleared?", self.shown_parent()),
            ),
            false => error.failed(),
        }
    }

    fn not_loaded(&self, error: Error) -> Failure<'static> {
        match error.code() == Some(codes::HANDLE) {
            true => self.of_parent(error),
            false => error.failure((
                Fault::Wrong,
                "this TPM did not seal it below this parent: it is another TPM, or it was cleared",
            )),
        }
    }

    /// Whether the TPM does not have the persistent parent. The primary key was just made.
    fn is_gone(&self, error: &Error) -> bool {
        error.code() == Some(codes::HANDLE) && self.uri.parent != Parent::Owner
    }

    fn other_pcrs(&self) -> Failure<'static> {
        let pcrs = self.uri.pcrs.as_ref().map(Pcrs::to_string).unwrap_or_default();
        Failure::new(
            Fault::Refused,
            format!(
                "the PCRs {pcrs} have other values than when the key was sealed, or pcrs= was \
                 changed: the machine booted something else. If that is wanted, seal the key anew \
                 from the escrow copy: pgseal key restore DIR COPY -K 'tpm2:...' --force"
            ),
        )
    }
}
