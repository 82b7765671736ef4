//! The guard module in the server's configuration.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

use crate::error::CliError;
use crate::{conf_text, small_file};

/// Adds the guard module before the modules that a configuration file preloads, unless it is there.
pub fn add(path: &Path, guard: &str) -> Result<(), CliError> {
    let text = read(path)?;
    match conf_text::with_guard(&text, guard) {
        Some(text) => write(path, &text),
        None => Ok(()),
    }
}

/// Takes the guard module out of a configuration file; the rest stays as it is.
pub fn remove(path: &Path) -> Result<(), CliError> {
    let text = read(path)?;
    let without = conf_text::without_guard(&text);
    if without == text {
        return Ok(());
    }
    write(path, &without)
}

/// Whether `postgresql.auto.conf` sets `shared_preload_libraries`. The server makes it as a regular
/// file; a link is refused, since pgseal would write to another file through it.
pub fn sets_preload(path: &Path) -> Result<bool, CliError> {
    if fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink()) {
        return Err(CliError::NotNow(format!(
            "{}: it is a link, which no server makes; put the file itself there, then run the same \
             command again",
            path.display()
        )));
    }
    match small_file::read_text(path) {
        Ok(text) => Ok(conf_text::preloaded(&text).is_some()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(CliError::io(path, "read the configuration")(error)),
    }
}

fn read(path: &Path) -> Result<String, CliError> {
    small_file::read_text(path).map_err(CliError::io(path, "read the configuration"))
}

/// Replaces the file, so that after a power cut there is the old or the new one. A file that cannot
/// be replaced (a bind mount, or in a directory of another user) is written in place.
fn write(path: &Path, text: &str) -> Result<(), CliError> {
    // Resolve links: the target is replaced, and the link stays.
    let path = path.canonicalize().map_err(CliError::io(path, "find the configuration"))?;
    match replace(&path, text) {
        Err(error) if is_not_replaceable(&error) => {}
        other => return other.map_err(CliError::io(&path, "write the configuration anew")),
    }
    // Not truncated first: on a full disk, most of the old text survives.
    let written = OpenOptions::new().write(true).open(&path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.set_len(text.len() as u64)?;
        file.sync_all()
    });
    written.map_err(CliError::io(&path, "write the configuration"))
}

/// Whether the error is about the directory entry only. On a full or failing disk, writing in place
/// would destroy the old text, too.
fn is_not_replaceable(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| {
        [Errno::BUSY, Errno::XDEV, Errno::ACCESS, Errno::PERM, Errno::ROFS].contains(&errno)
    })
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let old = fs::metadata(path)?;
    let mut name = path.as_os_str().to_owned();
    name.push(".pgseal-new");
    let new = Path::new(&name);
    let _ = fs::remove_file(new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(new)?;
    let written = (|| {
        let new_meta = file.metadata()?;
        if (new_meta.uid(), new_meta.gid()) != (old.uid(), old.gid()) {
            fchown(&file, Some(old.uid()), Some(old.gid()))?;
        }
        file.set_permissions(fs::Permissions::from_mode(old.mode() & 0o7777))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(new, path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(new);
    }
    written?;
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(before: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("postgresql.conf");
        fs::write(&path, before).unwrap();
        add(&path, "pgseal_guard").unwrap();
        let added = fs::read_to_string(&path).unwrap();
        // Adding it again changes nothing, and removing it restores the text.
        add(&path, "/usr/lib/pgseal_guard.so").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), added);
        remove(&path).unwrap();
        let newline = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{before}{newline}"));
        conf_text::preloaded(&added).unwrap()
    }

    #[test]
    fn the_guard_is_added_to_an_untouched_file() {
        assert_eq!(
            after("#shared_preload_libraries = ''\t# (change requires restart)\n"),
            "pgseal_guard"
        );
        assert_eq!(after("work_mem = 4MB"), "pgseal_guard");
        assert_eq!(after(""), "pgseal_guard");
    }

    #[test]
    fn a_full_or_failing_disk_is_no_reason_to_write_in_place() {
        let says = |number: i32| is_not_replaceable(&io::Error::from_raw_os_error(number));
        // EPERM, EACCES, EBUSY, EXDEV, EROFS; EIO, ENOSPC, EDQUOT.
        assert_eq!([1, 13, 16, 18, 30].map(says), [true; 5]);
        assert_eq!([5, 28, 122].map(says), [false; 3]);
        assert!(!is_not_replaceable(&io::Error::other("x")));
    }

    #[test]
    fn a_link_in_the_place_of_the_servers_own_file_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (auto, victim) = (dir.path().join("postgresql.auto.conf"), dir.path().join("victim"));
        fs::write(&victim, "shared_preload_libraries = 'x'\n").unwrap();
        std::os::unix::fs::symlink(&victim, &auto).unwrap();
        let error = sets_preload(&auto).unwrap_err();
        assert!(error.to_string().contains("it is a link"), "{error}");
        fs::remove_file(&auto).unwrap();
        assert!(!sets_preload(&auto).unwrap());
        fs::rename(&victim, &auto).unwrap();
        assert!(sets_preload(&auto).unwrap());
    }

    #[test]
    fn what_was_preloaded_stays() {
        assert_eq!(
            after("shared_preload_libraries = 'pg_stat_statements, auto_explain' # x\n"),
            "pgseal_guard,pg_stat_statements, auto_explain"
        );
        assert_eq!(
            after("Shared_Preload_Libraries auto_explain # x\n"),
            "pgseal_guard,auto_explain"
        );
        assert_eq!(after("shared_preload_libraries = ''\n"), "pgseal_guard");
    }
}
