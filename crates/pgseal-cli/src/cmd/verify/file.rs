//! Checks one file: header, every block, length, and whether it may be sealed or plain in its
//! place.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::thread;
use std::time::Duration;

use pgseal_core::geometry::{self, BLOCK_LEN, HEAD_LEN};
use pgseal_core::header::{self, Header, Kind};
use pgseal_core::storage::{self, Storage};
use pgseal_core::verify::{self, BlockList, BlockState, FileReport};
use pgseal_core::{BlockNo, HeaderFault, KeySet, Layout, Scratch, SealError, SealedFile};
use pgseal_pgdata::{Class, Fork, KeyScope, Policy, Renewal};

use super::subset::Subset;
use crate::out;
use crate::scan::{self, Entry, Seen};
use crate::storage::ReadOnly;

/// How often a file that a running server may be changing is checked before it counts as damaged.
const LOOKS: u32 = 6;
/// The time between the first two checks; it doubles each time: a server writes a page in two
/// steps, and may wait for the disk for seconds between them.
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);

/// A kind of finding about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// Blocks do not authenticate.
    DamagedBlocks,
    /// The header does not authenticate or is invalid.
    BadHeader,
    /// It is another file of the cluster, or is sealed differently from files in this place.
    Misplaced,
    /// The header is zeros, and bytes follow it.
    HeaderLost,
    /// A plain file of a class that is sealed.
    PlainInSealedClass,
    /// PostgreSQL leaves no file of this length.
    OddLength,
    /// It names another keyring.
    OtherKeyring,
    /// It names a generation that the keyring does not have.
    UnknownGeneration,
    /// A file that must not exist under pgseal.
    Forbidden,
    /// The record of a locked configuration is not valid.
    BadConfigRecord,
    /// The control record does not open, or is not that of `pg_control`.
    BadControlRecord,
    /// It is not as the manifest says, or the manifest cannot be used.
    NotAsListed,
    /// Segments of WAL are missing in an archive.
    MissingSegments,
    /// A link that leads nowhere.
    Dangling,
    /// The operating system refuses to read it.
    Unreadable,
    /// A relation that is nothing but zeros, which reads as an empty one.
    OnlyZeros,
    /// A harmless file that an interrupted command of pgseal left.
    Leftover,
    /// A plain file that is accepted in its place.
    PlainAccepted,
    /// A sealed file of a class that stays plain.
    SealedInPlainClass,
}

impl What {
    /// Whether the data directory is not sound because of it.
    pub fn is_failure(self) -> bool {
        !matches!(
            self,
            What::OnlyZeros | What::Leftover | What::PlainAccepted | What::SealedInPlainClass
        )
    }
}

/// One finding about one file.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The kind.
    pub what: What,
    /// In words.
    pub text: String,
    /// Whether PostgreSQL rebuilds the file, so that nothing is lost.
    pub is_rebuilt: bool,
}

impl Finding {
    /// Whether the data directory is not sound because of it.
    pub fn is_failure(&self) -> bool {
        self.what.is_failure() && !self.is_rebuilt
    }
}

/// The result for one file.
#[derive(Debug, Default)]
pub struct Checked {
    /// The findings.
    pub findings: Vec<Finding>,
    /// The result of the check of its blocks.
    pub report: Option<FileReport>,
    /// Whether it is a temporary file, whose key existed in the postmaster's memory only.
    pub is_ephemeral: bool,
    /// Whether it was removed meanwhile.
    pub is_gone: bool,
    /// An earlier run, which this one continues, has found it sound.
    pub was_done: bool,
    /// Blocks that looked damaged until the server had finished writing them.
    pub settled_blocks: u64,
}

impl Checked {
    fn with(what: What, text: impl Into<String>) -> Checked {
        let mut checked = Checked::default();
        checked.add(what, text);
        checked
    }

    fn add(&mut self, what: What, text: impl Into<String>) {
        self.findings.push(Finding { what, text: text.into(), is_rebuilt: false });
    }

    /// Whether every block of a sealed file was looked at and nothing was found.
    pub fn is_sound(&self) -> bool {
        self.report.is_some() && self.findings.is_empty()
    }

    /// Whether a finding is a failure.
    pub fn has_failed(&self) -> bool {
        self.findings.iter().any(Finding::is_failure)
    }

    fn is_as_it_should_be(&self) -> bool {
        !self.findings.iter().any(|finding| finding.what.is_failure())
    }

    /// Marks damage that does not matter.
    fn weigh(&mut self, entry: &Entry) {
        for finding in &mut self.findings {
            let Some(text) = rebuilt(finding.what, entry) else { continue };
            finding.is_rebuilt = true;
            finding.text = format!("{}; does not matter: {text}", finding.text);
        }
    }
}

/// Why damage does not matter; `None` if it does, or may.
fn rebuilt(what: What, entry: &Entry) -> Option<&'static str> {
    let path = entry.rel.as_os_str().as_bytes();
    let is_damage = matches!(
        what,
        What::DamagedBlocks
            | What::BadHeader
            | What::Misplaced
            | What::HeaderLost
            | What::OddLength
    );
    match entry.class {
        _ if !is_damage => None,
        Class::Relation { fork: Fork::Vm, .. } => {
            Some("PostgreSQL takes zeros for it and rebuilds the visibility map with VACUUM")
        }
        Class::Relation { fork: Fork::Fsm, .. } => {
            Some("PostgreSQL takes zeros for it and rebuilds the free space map")
        }
        class if class.is_rebuilt(path) => {
            Some("PostgreSQL removes or rewrites it before it reads it")
        }
        Class::LogicalMapping | Class::LogicalSpill | Class::ExportedSnapshot
            if what == What::HeaderLost =>
        {
            Some("nothing that was committed needs it")
        }
        _ => None,
    }
}

/// Checks a file; if a server runs and something is wrong, checks again.
pub fn check(
    entry: &mut Entry,
    keys: &KeySet,
    subset: &Subset,
    is_live: bool,
    scratch: &mut Scratch,
    progress: &mut dyn FnMut(u64),
) -> Checked {
    let mut checked = look(entry, keys, subset, is_live, scratch, progress);
    for look in 1..LOOKS {
        if !is_live || checked.is_as_it_should_be() {
            break;
        }
        thread::sleep(BETWEEN_LOOKS * (1 << (look - 1)));
        scan::look_again(entry);
        let before = checked.report.take().map_or(0, |report| report.damaged.count());
        let settled = checked.settled_blocks;
        checked = self::look(entry, keys, subset, is_live, scratch, &mut |_| {});
        let now = checked.report.as_ref().map_or(0, |report| report.damaged.count());
        checked.settled_blocks = settled + before.saturating_sub(now);
    }
    checked.weigh(entry);
    checked
}

fn look(
    entry: &Entry,
    keys: &KeySet,
    subset: &Subset,
    is_live: bool,
    scratch: &mut Scratch,
    progress: &mut dyn FnMut(u64),
) -> Checked {
    if let Policy::Refuse(why) = entry.class.policy() {
        return Checked::with(What::Forbidden, why);
    }
    if let Some(what) = entry.leftover() {
        return Checked::with(What::Leftover, what);
    }
    match &entry.seen {
        Seen::Sealed(header) => sealed(entry, header, keys, subset, is_live, scratch, progress),
        Seen::Empty | Seen::Special => Checked::default(),
        Seen::Plain if matches!(entry.class.policy(), Policy::Plain(_)) => Checked::default(),
        Seen::Plain if entry.may_be_plain() => {
            Checked::with(What::PlainAccepted, format!("plain: {}", entry.class.reason()))
        }
        Seen::Plain => Checked::with(
            What::PlainInSealedClass,
            format!("plain, and files of class {} must be sealed", entry.class.name()),
        ),
        Seen::HeaderLost { .. }
            if matches!(entry.class, Class::Relation { fork: Fork::Main | Fork::Init, .. })
                && ReadOnly::open(&entry.path, false)
                    .and_then(|file| storage::is_zeros(&file))
                    .unwrap_or(false) =>
        {
            Checked::with(
                What::OnlyZeros,
                format!(
                    "{} bytes of zeros and no header: it reads as an empty relation; a power cut \
                     leaves such a file of a table that was empty",
                    entry.len
                ),
            )
        }
        Seen::HeaderLost { bytes_behind } => Checked::with(
            What::HeaderLost,
            format!(
                "zeros in the place of the header, and {bytes_behind} bytes behind{}",
                if entry.class.renewal(entry.rel.as_os_str().as_bytes()) == Renewal::ByRedo {
                    "; after a power cut start the server and verify again: recovery makes anew \
                     what it needs"
                } else {
                    ""
                }
            ),
        ),
        Seen::BadHeader(text) => Checked::with(What::BadHeader, text.clone()),
        Seen::Dangling(target) => Checked::with(
            What::Dangling,
            format!("a link to {}, which is not there", target.display()),
        ),
        Seen::Unreadable(why) => Checked::with(What::Unreadable, format!("cannot be read: {why}")),
        Seen::Gone => Checked { is_gone: true, ..Checked::default() },
    }
}

fn sealed(
    entry: &Entry,
    header: &Header,
    keys: &KeySet,
    subset: &Subset,
    is_live: bool,
    scratch: &mut Scratch,
    progress: &mut dyn FnMut(u64),
) -> Checked {
    if header.generation.is_ephemeral() {
        progress(entry.len);
        if !matches!(entry.class.policy(), Policy::Seal { scope: KeyScope::Ephemeral, .. }) {
            let text = "sealed with the key of a server's run, as only temporary files are: nobody \
                        can open it";
            return Checked::with(What::UnknownGeneration, text);
        }
        return Checked { is_ephemeral: true, ..Checked::default() };
    }
    if header.keyring_id != keys.keyring_id {
        progress(entry.len);
        let text = format!("sealed with keyring {}, not with this one", header.keyring_id);
        return Checked::with(What::OtherKeyring, text);
    }
    if keys.get(header.generation).is_none() {
        progress(entry.len);
        let text = format!("generation {} is not in the keyring", header.generation);
        return Checked::with(What::UnknownGeneration, text);
    }
    match walk(entry, keys, subset, is_live, scratch, progress) {
        Ok(Some((header, report))) => judge(entry, &header, keys, report),
        // It was replaced by another kind of file after the scan; the next check shows.
        Ok(None) => Checked::with(What::BadHeader, "it changed while it was looked at"),
        Err(SealError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
            Checked { is_gone: true, ..Checked::default() }
        }
        Err(SealError::Io(error)) => {
            Checked::with(What::Unreadable, format!("cannot be read: {error}"))
        }
        Err(error @ SealError::Header(HeaderFault::NotAuthentic)) => {
            Checked::with(What::BadHeader, error.to_string())
        }
        Err(error) => Checked::with(What::BadHeader, error.to_string()),
    }
}

fn walk(
    entry: &Entry,
    keys: &KeySet,
    subset: &Subset,
    is_live: bool,
    scratch: &mut Scratch,
    progress: &mut dyn FnMut(u64),
) -> Result<Option<(Header, FileReport)>, SealError> {
    let storage = ReadOnly::open(&entry.path, is_live)?;
    let mut start = vec![0; HEAD_LEN as usize];
    let got = storage.raw(&mut start, 0)?;
    start.truncate(got);
    let Kind::Sealed(header) = header::classify(&start)? else { return Ok(None) };
    let mut file = SealedFile::from_header(&start, header, keys)?;
    let whole = subset.wants_file(&entry.path);
    let chosen = |block: BlockNo| whole && subset.wants_block(&entry.rel, block.0);
    let mut report = verify::verify_chosen(&mut file, &storage, scratch, &chosen, progress)?;
    if is_live {
        settle(&mut report, &mut file, &storage, keys, scratch)?;
    }
    Ok(Some((header, report)))
}

/// Checks the damaged blocks again, at once: a server may have been writing them, or have given the
/// file another key, and a few blocks are cheaper to read again than the whole file.
fn settle(
    report: &mut FileReport,
    file: &mut SealedFile,
    storage: &ReadOnly,
    keys: &KeySet,
    scratch: &mut Scratch,
) -> Result<(), SealError> {
    let mut still = BlockList::default();
    for block in report.damaged.blocks() {
        if file.lacked_key() {
            file.refresh(storage, keys)?;
        }
        match verify::verify_block(file, storage, scratch, block)? {
            BlockState::Damaged => still.push(block),
            BlockState::Data => report.data_blocks += 1,
            BlockState::Zero | BlockState::Unfitting | BlockState::Gone => {}
        }
    }
    report.damaged = still;
    let len = storage.len()?;
    let plain_len = geometry::plain_len(file.header().layout, len);
    let whole = geometry::sealed_len(file.header().layout, plain_len);
    (report.sealed_len, report.plain_len) = (len, plain_len);
    report.stray_bytes = len.0.saturating_sub(whole.0);
    Ok(())
}

fn judge(entry: &Entry, header: &Header, keys: &KeySet, report: FileReport) -> Checked {
    let mut checked = Checked::default();
    if let Some(why) = entry.class.misplaced(entry.place(), keys.suites(), header) {
        // The length is not checked: the layout may be another one.
        checked.add(What::Misplaced, format!("{why}: somebody put it here"));
        checked.report = Some(report);
        return checked;
    }
    if !entry.should_be_sealed() {
        checked.add(What::SealedInPlainClass, "sealed, and files of its class stay plain");
    }
    if !report.damaged.is_empty() {
        let ranges: Vec<String> =
            report.damaged.ranges().iter().take(10).map(out::blocks).collect();
        let more = if report.damaged.ranges().len() > 10 { ", ..." } else { "" };
        let many = report.damaged.count() > 1;
        checked.add(
            What::DamagedBlocks,
            format!(
                "{} {}{more} {} not authenticate: damaged or exchanged{}",
                if many { "blocks" } else { "block" },
                ranges.join(", "),
                if many { "do" } else { "does" },
                if header.layout == Layout::Sectored {
                    "; after a power cut start the server and verify again: recovery makes anew \
                     what it needs"
                } else {
                    ""
                }
            ),
        );
    }
    if report.stray_bytes > 0 {
        let text = format!("{} bytes at its end belong to no block: cut off", report.stray_bytes);
        checked.add(What::OddLength, text);
    } else if in_whole_pages(entry.class) && !report.plain_len.0.is_multiple_of(BLOCK_LEN) {
        let text = format!("{} plain bytes are no whole number of pages", report.plain_len);
        checked.add(What::OddLength, text);
    }
    checked.report = Some(report);
    checked
}

/// Whether PostgreSQL only ever writes whole 8192-byte pages to files of this class.
fn in_whole_pages(class: Class) -> bool {
    matches!(class, Class::Relation { .. } | Class::Slru)
}
