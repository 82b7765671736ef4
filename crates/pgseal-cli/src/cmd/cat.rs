//! `pgseal cat`: writes the plain content of a sealed file.

use std::io::Write;
use std::path::PathBuf;

use pgseal_core::geometry::{HEAD_LEN, HEADER_LEN};
use pgseal_core::header::{self, Kind};
use pgseal_core::storage::Storage;
use pgseal_core::{OnDamage, PlainOff, Scratch, SealError, SealedFile};

use crate::error::CliError;
use crate::keys::{self, KeyOptions};
use crate::out::{self, Out};
use crate::storage::ReadOnly;
use crate::{datadir, exit};

const EXAMPLES: &str = "\
Examples:
  pgseal cat DIR/base/5/1259 | xxd | less
  pgseal cat DIR/base/5/1259 --offset 8192 --length 8192 > page1
  pgseal cat /backup/wal/000000010000000000000007 --keyring /backup/keyring > segment

The keyring is that of the data directory around the file, unless -D, --keyring or PGSEAL_DATA says
otherwise. Reading stops at the first damaged block. A file that is not sealed is written as it is.";

/// The bytes of one read.
const CHUNK: usize = 128 * 1024;

/// Write the plain content of a sealed file to standard output
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The file
    file: PathBuf,
    /// Start at this byte of the plain content
    #[arg(long, default_value_t = 0, value_name = "BYTES")]
    offset: u64,
    /// Write at most so many bytes
    #[arg(long, value_name = "BYTES")]
    length: Option<u64>,
    /// The data directory whose keyring opens the file
    #[arg(short = 'D', long = "pgdata", value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    keys: KeyOptions,
    /// Write binary content even to a terminal
    #[arg(long)]
    force: bool,
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    let path = &args.file;
    crate::as_owner::step_down_beside(path)?;
    let open = |live| ReadOnly::open(path, live).map_err(CliError::io(path, "open the file"));
    let file = open(true)?;
    let mut start = vec![0; HEAD_LEN as usize];
    let got = file.raw(&mut start, 0).map_err(CliError::io(path, "read the file"))?;
    start.truncate(got);
    let mut source = match header::classify(&start).map_err(CliError::sealed(path))? {
        Kind::Sealed(header) => {
            let keys = keys::for_file(path, header.keyring_id, &args.keys, args.dir.as_deref())?;
            let sealed =
                SealedFile::from_header(&start, header, &keys).map_err(CliError::sealed(path))?;
            Source::Sealed(Box::new(sealed), Box::default())
        }
        Kind::NoHeader if datadir::above(path).is_some() || start.len() < HEAD_LEN as usize => {
            let len = file.len().map_err(CliError::io(path, "stat the file"))?;
            if len.0 > HEADER_LEN {
                let error = SealError::Header(pgseal_core::HeaderFault::NotAuthentic);
                return Err(CliError::sealed(path)(error));
            }
            return Ok(exit::SOUND);
        }
        Kind::Plain | Kind::NoHeader => {
            out::complain(&format!("{}: not sealed; writing it as it is", path.display()));
            Source::Plain
        }
    };
    copy(args, &file, &mut source)
}

enum Source {
    Sealed(Box<SealedFile>, Box<Scratch>),
    Plain,
}

impl Source {
    fn read(&mut self, file: &ReadOnly, buf: &mut [u8], off: u64) -> Result<usize, SealError> {
        match self {
            Source::Sealed(sealed, scratch) => {
                let at = PlainOff(off);
                Ok(sealed.read_at(file, scratch, buf, at, OnDamage::Fail)?.len)
            }
            Source::Plain => Ok(file.raw(buf, off)?),
        }
    }
}

fn copy(args: &Args, file: &ReadOnly, source: &mut Source) -> Result<u8, CliError> {
    let mut out = Out::new();
    let mut buf = vec![0; CHUNK];
    let mut off = args.offset;
    let mut left = args.length.unwrap_or(u64::MAX);
    while left > 0 && !out.is_closed() {
        let want = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        // The blocks before a damaged one are still written: read again, up to the damaged block.
        let step = match source.read(file, &mut buf[..want], off) {
            Err(SealError::BlockDamaged(block)) if block.0 * 8192 > off => {
                let whole = usize::try_from(block.0 * 8192 - off).unwrap_or(0).min(want);
                source.read(file, &mut buf[..whole], off)
            }
            other => other,
        };
        let got = match step {
            Ok(got) => got,
            Err(error) => {
                out.flush()?;
                return Err(CliError::sealed(&args.file)(error));
            }
        };
        let Some(bytes) = buf.get(..got).filter(|bytes| !bytes.is_empty()) else { break };
        if off == args.offset && !args.force && out::is_terminal() && is_binary(bytes) {
            return Err(CliError::Usage(format!(
                "{}: the content is binary and would upset the terminal; \
                 send it to a file or a pipe, or give --force",
                args.file.display()
            )));
        }
        out.write_all(bytes)?;
        off = off.saturating_add(got as u64);
        left = left.saturating_sub(got as u64);
    }
    out.flush()?;
    Ok(exit::SOUND)
}

fn is_binary(bytes: &[u8]) -> bool {
    let control = |byte: &u8| *byte < 0x20 && !matches!(byte, b'\n' | b'\r' | b'\t');
    bytes.iter().take(8192).any(|byte| control(byte) || *byte == 0x7f)
}
