//! Response codes of the TPM, and whose fault they are (Part 2, section 6.6).

use pgseal_plugin::Fault;

/// The layer that made a code, bits 16 to 23 (TCG TSS 2.0 Overview and Common Structures).
const LAYER_TPM: u32 = 0;
/// A resource manager that hands on a code of the TPM.
const LAYER_MANAGER_TPM: u32 = 11;
const LAYER_MANAGER: u32 = 12;
const LAYER_TCTI: u32 = 10;

/// A response code without the number of the handle, parameter or session that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// A code of the TPM.
    Tpm(u32),
    /// The way to the TPM failed: the TCTI, or a resource manager.
    Way,
    /// The TPM Software Stack refused its input.
    Stack,
}

/// `TPM_RC_HANDLE`: there is no such key or NV index.
pub(crate) const HANDLE: Code = Code::Tpm(0x08b);
/// `TPM_RC_POLICY_FAIL`: the policy of an object does not hold.
pub(crate) const POLICY_FAIL: Code = Code::Tpm(0x09d);

/// A code, whose fault it is, and what it means here.
struct Row(u32, Fault, &'static str);

/// Codes whose meaning does not depend on the command.
const TABLE: &[Row] = &[
    // The owner hierarchy, or the parent, is the only entity with an authorization value here.
    Row(0x08e, Fault::Refused, AUTH),
    Row(0x0a2, Fault::Refused, AUTH),
    Row(0x124, Fault::Refused, AUTH),
    Row(0x125, Fault::Refused, AUTH),
    Row(0x12f, Fault::Refused, AUTH),
    Row(0x120, Fault::Refused, "the command is disabled in this TPM"),
    Row(0x085, Fault::Refused, "the owner hierarchy is disabled in this TPM"),
    Row(0x149, Fault::Refused, "the NV index does not allow this to the owner"),
    Row(0x148, Fault::Refused, "the NV index is locked"),
    Row(0x921, Fault::Refused, LOCKED),
    Row(0x907, Fault::Refused, "this locality may not do that"),
    Row(0x100, Fault::Unavailable, "the TPM is not started"),
    Row(0x101, Fault::Unavailable, "the TPM has failed its self-test; start the machine again"),
    Row(0x128, Fault::Unavailable, "a PCR was extended at the same time"),
    Row(0x14c, Fault::Unavailable, "the NV index was defined at the same time"),
    Row(0x14b, Fault::Configuration, "the TPM has no room for another NV index"),
    Row(0x143, Fault::Configuration, "the TPM does not know this command"),
    Row(0x082, Fault::Configuration, "an attribute does not fit"),
    Row(0x083, Fault::Configuration, "the TPM does not have this hash"),
    Row(0x08a, Fault::Configuration, "the parent is no storage key"),
    Row(0x09c, Fault::Configuration, "the parent is no storage key"),
    Row(0x081, Fault::Configuration, "the TPM does not have elliptic curves"),
    Row(0x0a6, Fault::Configuration, "the TPM does not have the curve P-256"),
];

const AUTH: &str = "the owner hierarchy, or the parent, has an authorization value; put that of the \
                    owner into a file of mode 600, and add owner-auth-file=/PATH";
const LOCKED: &str = "the TPM is locked after wrong authorization values; wait, or reset the lock \
                      (tpm2_dictionarylockout --clear-lockout)";
const BUSY: &str = "the TPM is busy, or full of objects of others";

/// Warnings (`RC_WARN`): what else is not in [`TABLE`] may pass.
const WARNINGS: std::ops::RangeInclusive<u32> = 0x900..=0x97f;

impl Code {
    fn of(raw: u32) -> Code {
        match (raw >> 16) & 0xff {
            LAYER_TCTI | LAYER_MANAGER => Code::Way,
            // Format one has the number of what it is about in bits 6 and 8 to 11.
            LAYER_TPM | LAYER_MANAGER_TPM if raw & 0x80 != 0 => Code::Tpm(raw & 0xbf),
            LAYER_TPM | LAYER_MANAGER_TPM => Code::Tpm(raw & 0xfff),
            _ => Code::Stack,
        }
    }

    /// The first code that a program of tpm2-tools writes to standard error: `Esys_Load(0x1DF)`,
    /// `ErrorCode (0x000001df)`.
    pub(crate) fn in_log(log: &str) -> Option<Code> {
        let code = log.split("(0x").skip(1).find_map(|rest| {
            let (digits, _) = rest.split_once(')')?;
            u32::from_str_radix(digits, 16).ok()
        });
        match code {
            Some(raw) => Some(Code::of(raw)),
            None if log.contains("Could not load tcti") => Some(Code::Way),
            None => None,
        }
    }

    /// Whose fault it is, and what it means, if that does not depend on the command.
    pub(crate) fn fault(self) -> Option<(Fault, &'static str)> {
        match self {
            Code::Way => Some((Fault::Unavailable, "no connection to the TPM")),
            Code::Stack => None,
            Code::Tpm(code) => {
                let row = TABLE.iter().find(|row| row.0 == code);
                let row = row.map(|Row(_, fault, words)| (*fault, *words));
                row.or_else(|| WARNINGS.contains(&code).then_some((Fault::Unavailable, BUSY)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_without_the_number_of_what_they_are_about() {
        for (raw, code) in [
            (0x1df, Code::Tpm(0x09f)),
            (0x99d, POLICY_FAIL),
            (0x18b, HANDLE),
            (0x9a2, Code::Tpm(0x0a2)),
            (0x98e, Code::Tpm(0x08e)),
            (0x921, Code::Tpm(0x921)),
            (0x12f, Code::Tpm(0x12f)),
            (0x000b_0143, Code::Tpm(0x143)),
            (0x000b_0902, Code::Tpm(0x902)),
            (0x000a_000a, Code::Way),
            (0x000c_0001, Code::Way),
            (0x0009_0006, Code::Stack),
            (0x0007_0001, Code::Stack),
        ] {
            assert_eq!(Code::of(raw), code, "{raw:#x}");
        }
    }

    /// Lines that tpm2-tools 5.4 wrote.
    #[test]
    fn codes_in_what_the_tools_write() {
        for (log, code) in [
            (
                "WARNING:esys:src/tss2-esys/api/Esys_Load.c:324:Esys_Load_Finish() Received TPM \
                 Error \nERROR:esys:src/tss2-esys/api/Esys_Load.c:112:Esys_Load() Esys Finish \
                 ErrorCode (0x000001df) \nERROR: Eys_Load(0x1DF) - tpm:parameter(1):integrity",
                Some(Code::Tpm(0x09f)),
            ),
            ("ERROR: Esys_Unseal(0x99D) - tpm:session(1):a policy check failed", Some(POLICY_FAIL)),
            (
                "WARNING:tcti:src/util/io.c:262:socket_connect() Failed to connect to host \
                 127.0.0.1, port 1: errno 111: Connection refused\nERROR: Could not load tcti, \
                 got: \"swtpm:host=127.0.0.1,port=1\"",
                Some(Code::Way),
            ),
            ("ERROR: Error deserializing private structure: 0x90006", None),
            ("Load(0xzz) Load(0x", None),
            ("", None),
        ] {
            assert_eq!(Code::in_log(log), code, "{log}");
        }
    }

    #[test]
    fn each_code_has_its_fault() {
        for (raw, fault) in [
            (0x9a2, Some(Fault::Refused)),
            (0x98e, Some(Fault::Refused)),
            (0x921, Some(Fault::Refused)),
            (0x902, Some(Fault::Unavailable)),
            (0x922, Some(Fault::Unavailable)),
            (0x923, Some(Fault::Unavailable)),
            (0x101, Some(Fault::Unavailable)),
            (0x14b, Some(Fault::Configuration)),
            (0x000a_0008, Some(Fault::Unavailable)),
            // Their meaning depends on the command.
            (0x18b, None),
            (0x1df, None),
            (0x99d, None),
            (0x0009_0006, None),
        ] {
            assert_eq!(Code::of(raw).fault().map(|found| found.0), fault, "{raw:#x}");
        }
        for (at, row) in TABLE.iter().enumerate() {
            assert!(TABLE.iter().take(at).all(|other| other.0 != row.0), "{:#x} twice", row.0);
            assert_eq!(
                Code::of(row.0),
                Code::Tpm(row.0),
                "{:#x} has the number of a handle",
                row.0
            );
        }
    }
}
