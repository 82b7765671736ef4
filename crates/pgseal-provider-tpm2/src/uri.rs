//! The URI: `tpm2:parent=owner;pcrs=sha256:7?tcti=T&...`, in the form of the URIs of `pkcs11:` (RFC
//! 7512).

use std::path::{Path, PathBuf};

use pgseal_plugin::uri::{absolute, attributes, once, shown, string};
use pgseal_plugin::{Failure, configuration};

use crate::handle;
use crate::nv::Index;
use crate::pcrs::Pcrs;
use crate::tcti::Tcti;

/// Where Debian has the programs of tpm2-tools.
const TOOLS: &str = "/usr/bin";
/// `PERSISTENT_FIRST` to `PERSISTENT_LAST` (Part 2, section 7.5).
const PERSISTENT: std::ops::RangeInclusive<u32> = 0x8100_0000..=0x81ff_ffff;

/// The storage key below which keys are sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parent {
    /// The primary key of the owner hierarchy, made anew from the same template each time.
    Owner,
    /// A persistent key.
    Handle(u32),
}

/// What a URI says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Uri {
    /// The key below which keys are sealed.
    pub parent: Parent,
    /// The PCRs that must have the same values when the key is unsealed.
    pub pcrs: Option<Pcrs>,
    /// The way to the TPM.
    pub tcti: Option<Tcti>,
    /// The directory of the programs.
    pub tools: PathBuf,
    /// The NV index for the anchor.
    pub anchor: Option<Index>,
    /// The file with the authorization value of the owner hierarchy.
    pub owner_auth: Option<PathBuf>,
}

impl Uri {
    /// Parses a URI. An unknown attribute is an error, because it may be a mistyped one, and each
    /// attribute stands once.
    pub(crate) fn parse(text: &str) -> Result<Uri, Failure<'static>> {
        let rest = text.strip_prefix("tpm2:").ok_or_else(|| configuration("no tpm2: URI"))?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (mut parent, mut pcrs) = (None, None);
        for (name, value) in attributes(path, ';')? {
            let value = string(name, value)?;
            match name {
                "parent" => once(&mut parent, name, self::parent(&value)?)?,
                "pcrs" => once(&mut pcrs, name, Pcrs::parse(&value)?)?,
                _ => return Err(unknown(name)),
            }
        }
        let (mut tcti, mut tools, mut anchor, mut owner_auth) = (None, None, None, None);
        for (name, value) in attributes(query, '&')? {
            let value = string(name, value)?;
            match name {
                "tcti" => once(&mut tcti, name, Tcti::parse(name, &value)?)?,
                "tools" => once(&mut tools, name, absolute(name, &value)?)?,
                "anchor" => once(&mut anchor, name, Index::parse(&value)?)?,
                "owner-auth-file" => once(&mut owner_auth, name, absolute(name, &value)?)?,
                "owner-auth" | "auth" => {
                    return Err(configuration(format!(
                        "{name}: a credential must not stand in a URI, which is stored and shown; \
                         put it into a file of mode 600, and give owner-auth-file=/PATH"
                    )));
                }
                _ => return Err(unknown(name)),
            }
        }
        let parent = parent.ok_or_else(|| {
            configuration(
                "the parent key is missing: give tpm2:parent=owner, or tpm2:parent=0x81000001 for \
                 a persistent key",
            )
        })?;
        let tools = tools.unwrap_or_else(|| Path::new(TOOLS).to_owned());
        Ok(Uri { parent, pcrs, tcti, tools, anchor, owner_auth })
    }
}

fn parent(value: &str) -> Result<Parent, Failure<'static>> {
    if value == "owner" {
        return Ok(Parent::Owner);
    }
    match handle::parse(value).filter(|handle| PERSISTENT.contains(handle)) {
        Some(handle) => Ok(Parent::Handle(handle)),
        None => Err(configuration(
            "parent: give owner, or the handle of a persistent key, 0x81000000 to 0x81ffffff",
        )),
    }
}

fn unknown(name: &str) -> Failure<'static> {
    configuration(format!(
        "{}: no attribute that this plugin knows here; it takes parent and pcrs, and behind the \
         ?: tcti, tools, anchor, owner-auth-file",
        shown(name)
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use pgseal_plugin::Fault;

    use super::*;

    #[test]
    fn a_whole_uri() {
        let uri = Uri::parse(
            "tpm2:parent=0x81000001;pcrs=sha256:7,0?tcti=swtpm:host=127.0.0.1,port=2321&\
             tools=/opt/tpm%20tools&anchor=0x1800016&owner-auth-file=/etc/pgseal/owner",
        );
        let wanted = Uri {
            parent: Parent::Handle(0x8100_0001),
            pcrs: Some(Pcrs::parse("sha256:0,7").unwrap()),
            tcti: Some(Tcti::parse("tcti", "swtpm:host=127.0.0.1,port=2321").unwrap()),
            tools: PathBuf::from("/opt/tpm tools"),
            anchor: Some(Index::parse("0x1800016").unwrap()),
            owner_auth: Some(PathBuf::from("/etc/pgseal/owner")),
        };
        assert_eq!(uri.unwrap(), wanted);
        let short = Uri::parse("tpm2:parent=owner").unwrap();
        assert_eq!((short.parent, short.tools), (Parent::Owner, PathBuf::from("/usr/bin")));
        assert_eq!((short.pcrs, short.tcti, short.anchor), (None, None, None));
    }

    #[test]
    fn wrong_uris_are_refused_and_show_no_secret() {
        for bad in [
            "tpm:parent=owner",
            "tpm2:",
            "tpm2:owner",
            "tpm2:pcrs=sha256:7",
            "tpm2:parent=",
            "tpm2:parent=platform",
            "tpm2:parent=0x80000001",
            "tpm2:parent=0x82000000",
            "tpm2:parent=81000001",
            "tpm2:parent=owner;parent=owner",
            "tpm2:parent=owner;tools=/usr/bin",
            "tpm2:parent=owner;pcrs=sha256",
            "tpm2:parent=owner?pcrs=sha256:7",
            "tpm2:parent=owner?tools=bin",
            "tpm2:parent=owner?tcti=cmd:sh",
            "tpm2:parent=owner?tcti=/tmp/evil.so",
            "tpm2:parent=owner?anchor=7",
            "tpm2:parent=owner?owner-auth-file=auth",
            "tpm2:parent=owner?owner-auth=sekrit",
            "tpm2:parent=owner?sek/rit=1",
        ] {
            let failure = Uri::parse(bad).unwrap_err();
            assert_eq!(failure.kind, Fault::Configuration, "{bad}");
            assert!(!failure.message.contains("sekrit") && !failure.message.contains("sek/rit"));
        }
    }
}
