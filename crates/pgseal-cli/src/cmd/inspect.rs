//! `pgseal inspect`: prints the header and the sizes of a file. Needs no key.

use std::io::Write;
use std::path::PathBuf;

use pgseal_core::geometry::{self, HEAD_LEN, HEADER_LEN};
use pgseal_core::header::{self, FORMAT_VERSION, Header, Kind, Stage};
use pgseal_core::storage::Storage;
use pgseal_core::verify::BlockRange;
use pgseal_core::{BlockNo, Layout, SealError, SealedLen};
use serde::Serialize;

use crate::error::CliError;
use crate::out::{self, Out};
use crate::storage::ReadOnly;
use crate::{exit, zeros};

const EXAMPLES: &str = "\
Examples:
  pgseal inspect /srv/postgres/data/base/5/1259
  pgseal inspect --json /backup/wal/000000010000000000000007";

/// How many ranges of zero blocks are shown.
const SHOWN: usize = 10;

/// Show the header and the sizes of a sealed file
///
/// Needs no key, and so authenticates nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The file
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    file: String,
    kind: &'static str,
    bytes: u64,
    #[serde(flatten)]
    sealed: Option<Sealed>,
}

#[derive(Debug, Serialize)]
struct Sealed {
    format_version: u16,
    suite: &'static str,
    layout: &'static str,
    /// Which file of the cluster it is; `null`: bound to none.
    place: Option<String>,
    /// Whether zeros on the disk may be a hole.
    holes: bool,
    authenticated_blocks: bool,
    file_id: String,
    keyring_id: String,
    generation: String,
    /// The number of the newest file key: 1 in a file that never got another one.
    file_key: u32,
    /// Whether there is an older one as well.
    older_file_key: bool,
    /// About how many writes the key that seals has sealed.
    writes: u64,
    plain_bytes: u64,
    blocks: u64,
    stray_bytes: u64,
    zero_blocks: u64,
    /// First block and number of blocks.
    zero_ranges: Vec<(u64, u64)>,
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    let path = &args.file;
    crate::as_owner::step_down_beside(path)?;
    let file = ReadOnly::open(path, false).map_err(CliError::io(path, "open the file"))?;
    let mut start = vec![0; HEAD_LEN as usize];
    let got = file.raw(&mut start, 0).map_err(CliError::io(path, "read the file"))?;
    start.truncate(got);
    let sealed_len = file.len().map_err(CliError::io(path, "stat the file"))?;
    let kind = header::classify(&start).map_err(CliError::sealed(path))?;
    let mut report = Report {
        file: path.display().to_string(),
        kind: "plain",
        bytes: sealed_len.0,
        sealed: None,
    };
    match kind {
        Kind::Sealed(header) => {
            report.kind = "sealed";
            report.sealed =
                Some(sealed(&file, &header, sealed_len).map_err(CliError::sealed(path))?);
        }
        Kind::NoHeader => {
            report.kind = if sealed_len.0 > HEADER_LEN { "header-lost" } else { "empty" }
        }
        Kind::Plain => {}
    }
    let mut out = Out::new();
    if args.json {
        out.json(&report)?;
    } else {
        print(&mut out, &report)?;
    }
    out.flush()?;
    Ok(match report.kind {
        "plain" => exit::NOT_SEALED,
        "header-lost" => exit::DAMAGE,
        _ => exit::SOUND,
    })
}

fn sealed(file: &ReadOnly, header: &Header, sealed_len: SealedLen) -> Result<Sealed, SealError> {
    let plain_len = geometry::plain_len(header.layout, sealed_len);
    let zeros = zeros::find(file, header.layout, plain_len)?;
    Ok(Sealed {
        format_version: FORMAT_VERSION,
        suite: header.suite.name(),
        layout: header.layout.name(),
        place: (!header.place.is_any()).then(|| header.place.to_string()),
        holes: matches!(header.layout, Layout::Paged | Layout::InPlace | Layout::Wal),
        authenticated_blocks: header.suite.authenticates(),
        file_id: header.file_id.iter().map(|byte| format!("{byte:02x}")).collect(),
        keyring_id: header.keyring_id.to_string(),
        generation: header.generation.to_string(),
        file_key: header.key_number,
        older_file_key: header.stage != Stage::Settled,
        writes: header.writes(),
        plain_bytes: plain_len.0,
        blocks: plain_len.0.div_ceil(geometry::BLOCK_LEN),
        stray_bytes: sealed_len.0.saturating_sub(geometry::sealed_len(header.layout, plain_len).0),
        zero_blocks: zeros.count(),
        zero_ranges: zeros.ranges().iter().map(|range| (range.first.0, range.count)).collect(),
    })
}

fn print(out: &mut Out, report: &Report) -> std::io::Result<()> {
    writeln!(out, "File         {}", report.file)?;
    let kind = match report.kind {
        "plain" => "plain: not sealed by pgseal",
        "empty" => "empty: a header was not written yet",
        "header-lost" => "damaged: zeros in the place of the header, and bytes behind",
        other => other,
    };
    writeln!(out, "Kind         {kind}")?;
    writeln!(out, "Size         {} bytes on disk", report.bytes)?;
    let Some(sealed) = &report.sealed else { return Ok(()) };
    writeln!(out, "Plain size   {} bytes in {} blocks", sealed.plain_bytes, sealed.blocks)?;
    let checked = if sealed.authenticated_blocks { "authenticated" } else { "not authenticated" };
    writeln!(out, "Suite        {}, blocks {checked}", sealed.suite)?;
    writeln!(out, "Layout       {}, format version {}", sealed.layout, sealed.format_version)?;
    writeln!(out, "Place        {}", sealed.place.as_deref().unwrap_or("any"))?;
    writeln!(out, "Holes        {}", if sealed.holes { "allowed" } else { "none" })?;
    writeln!(out, "File id      {}", sealed.file_id)?;
    writeln!(out, "Keyring      {}", sealed.keyring_id)?;
    writeln!(out, "Generation   {}", sealed.generation)?;
    let older = if sealed.older_file_key { ", and the one before it" } else { "" };
    writeln!(out, "File key     {}{older}", sealed.file_key)?;
    if sealed.writes > 0 {
        writeln!(out, "Writes       about {} under this key; the limit is 2^32", sealed.writes)?;
    }
    if sealed.stray_bytes > 0 {
        writeln!(out, "Stray bytes  {} at the end belong to no block", sealed.stray_bytes)?;
    }
    let ranges: Vec<String> = sealed
        .zero_ranges
        .iter()
        .take(SHOWN)
        .map(|(first, count)| out::blocks(&BlockRange { first: BlockNo(*first), count: *count }))
        .collect();
    let more = if sealed.zero_ranges.len() > SHOWN { ", ..." } else { "" };
    match sealed.zero_blocks {
        0 => writeln!(out, "Zero blocks  none"),
        number => writeln!(out, "Zero blocks  {number}: {}{more}", ranges.join(", ")),
    }
}
