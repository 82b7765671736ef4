//! The changes that an attacker could make in a data directory, one at a time.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use super::{Change, Trap, make_special};

/// Unwraps the result of a step of a change.
#[allow(clippy::panic, reason = "a change that was not made would make the test one of nothing")]
fn must<T>(result: io::Result<T>, what: &Path) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{}: {error}", what.display()),
    }
}

fn keyring(data: &Path) -> PathBuf {
    data.join("pgseal/keyring")
}

fn edit(path: &Path, change: impl FnOnce(String) -> String) {
    let text = must(fs::read_to_string(path), path);
    must(fs::write(path, change(text)), path);
}

/// Overwrites a file with other bytes.
fn overwrite(data: &Path, name: &str, bytes: &[u8]) {
    let path = data.join(name);
    must(fs::write(&path, bytes), &path);
}

/// Makes a file so long that reading it never ends in practice.
fn lengthen(data: &Path, name: &str) {
    let path = data.join(name);
    let file = must(fs::OpenOptions::new().create(true).append(true).open(&path), &path);
    must(file.set_len(1_000_000_000), &path);
}

/// Gives a file to a user who is neither the owner of the directory nor root.
fn give_away(data: &Path, name: &str) {
    let path = data.join(name);
    // Only root can do this.
    let _ = chown(&path, Some(65533), None);
}

/// Sets a field of the keyring to another value; the keyring's MAC no longer matches.
fn set(data: &Path, field: &str, value: &str) {
    edit(&keyring(data), |text| {
        let name = format!("\"{field}\": ");
        let start = text.find(&name).map_or(text.len(), |at| at + name.len());
        let end = text[start..].find([',', '\n']).map_or(text.len(), |at| start + at);
        assert!(start < end, "no field {field}");
        format!("{}{value}{}", &text[..start], &text[end..])
    });
}

fn set_provider(data: &Path, uri: &str) {
    set(data, "provider", &format!("\"{uri}\""));
    if uri.starts_with("passphrase:") {
        passphrase(data, 65536, 3);
    }
}

fn passphrase(data: &Path, memory_kib: u32, passes: u32) {
    let params = format!(
        "\"passphrase\": {{\"kdf\": \"argon2id\", \"version\": 19, \"memory_kib\": {memory_kib}, \
         \"passes\": {passes}, \"lanes\": 1, \"salt\": \"{}\"}},\n  \"key_check\"",
        "ab".repeat(16)
    );
    edit(&keyring(data), |text| text.replacen("\"key_check\"", &params, 1));
}

fn into_fifo(data: &Path, name: &str) {
    let path = data.join(name);
    let _ = fs::remove_file(&path);
    must(make_special(&path, "p"), &path);
}

/// Replaces a file with a device; only root can create one.
fn into_device(data: &Path, name: &str) {
    let path = data.join(name);
    let _ = fs::remove_file(&path);
    let _ = make_special(&path, "c");
}

fn into_link(data: &Path, name: &str, target: &Path) {
    let path = data.join(name);
    if path.is_dir() {
        must(fs::remove_dir_all(&path), &path);
    } else {
        let _ = fs::remove_file(&path);
    }
    must(symlink(target, &path), &path);
}

/// Writes the journal of a conversion that is nearly done; the journal names the attacker's
/// configuration file.
fn journal(data: &Path, operation: &str, phase: &str, config: &Path, major: &str) {
    let path = data.join("pgseal/conversion");
    let suite = if operation == "decrypt" { "" } else { "aes-256-gcm" };
    let text = format!(
        "{{\"format\": \"pgseal-conversion\", \"version\": 1, \"operation\": \"{operation}\", \
         \"phase\": \"{phase}\", \"pg_version\": \"{major}\\n\", \"suite\": \"{suite}\", \
         \"keyring\": \"\", \"generation_before\": 1, \"facts\": {{\"catalog_version\": 1, \
         \"checksums\": true, \"segment_pages\": 131072}}, \"config_file\": \"{}\"}}",
        config.display()
    );
    must(fs::write(&path, text), &path);
}

const fn change(name: &'static str, make: fn(&Path, &Trap)) -> Change {
    Change { name, stops_server: false, make }
}

const fn not_for_servers(name: &'static str, make: fn(&Path, &Trap)) -> Change {
    Change { name, stops_server: true, make }
}

/// The changes that once revealed a bug; they stand for all changes where time is short.
pub const FEW: [&str; 4] = [
    "provider: command:",
    "provider: passphrase:command=",
    "postmaster.opts: another program",
    "pgseal/conversion: decrypt, another configuration file",
];

/// All changes. Each leaves a directory that differs from what its owner made.
pub const CHANGES: &[Change] = &[
    change("provider: command:", |data, trap| {
        set_provider(data, &format!("command:{}", trap.program().display()));
    }),
    change("provider: passphrase:command=", |data, trap| {
        set_provider(data, &format!("passphrase:command={}", trap.program().display()));
    }),
    change("provider: passphrase:fd=0", |data, _| set_provider(data, "passphrase:fd=0")),
    change("provider: passphrase:", |data, _| set_provider(data, "passphrase:")),
    change("provider: a key in the data directory", |data, trap| {
        let planted = data.join("planted.key");
        must(fs::copy(trap.dir.join("planted.key"), &planted), &planted);
        must(fs::set_permissions(&planted, fs::Permissions::from_mode(0o600)), &planted);
        set_provider(data, &format!("file:{}", planted.display()));
    }),
    change("provider: a FIFO", |data, trap| {
        set_provider(data, &format!("file:{}", trap.fifo().display()));
    }),
    change("provider: a device", |data, _| set_provider(data, "file:/dev/zero")),
    change("provider: another variable", |data, _| set_provider(data, "env:PATH")),
    change("provider: a key store on a network", |data, _| {
        set_provider(data, "https://127.0.0.1:1/key");
    }),
    change("keyring: format", |data, _| set(data, "format", "\"x\"")),
    change("keyring: version", |data, _| set(data, "version", "999999999999")),
    change("keyring: identity", |data, _| {
        set(data, "keyring_id", &format!("\"{}\"", "00".repeat(16)));
    }),
    change("keyring: time", |data, _| set(data, "created", "\"yesterday\"")),
    change("keyring: suite", |data, _| set(data, "suite", "\"aes-256-xts\"")),
    change("keyring: an older suite", |data, _| {
        edit(&keyring(data), |text| {
            text.replacen(
                "  \"suite\": ",
                "  \"older_suites\": [\"aes-256-xts\"],\n  \"suite\": ",
                1,
            )
        });
    }),
    change("keyring: key check", |data, _| set(data, "key_check", "\"0000000000000000\"")),
    change("keyring: generation", |data, _| set(data, "generation", "4294967295")),
    change("keyring: state", |data, _| set(data, "state", "\"retired\"")),
    change("keyring: the wrapped keyring key", |data, _| {
        set(data, "wrapped", &format!("\"{}\"", "00".repeat(32)));
    }),
    change("keyring: the wrapped data key", |data, _| {
        edit(&keyring(data), |text| {
            let at = text.rfind("\"wrapped\": \"").map_or(text.len(), |at| at + 12);
            format!("{}{}{}", &text[..at], "00".repeat(32), &text[at + 64..])
        });
    }),
    change("keyring: no generation", |data, _| {
        edit(&keyring(data), |text| {
            let start = text.find("\"generations\": [").map_or(0, |at| at + 16);
            let end = text.rfind("\n  ]").unwrap_or(text.len());
            format!("{}{}", &text[..start], &text[end..])
        });
    }),
    change("keyring: a field that nobody knows", |data, _| {
        edit(&keyring(data), |text| text.replacen("{\n", "{\n  \"surplus\": 1,\n", 1));
    }),
    change("keyring: MAC", |data, _| {
        edit(&keyring(data), |text| {
            let at = text.rfind("mac: ").map_or(text.len(), |at| at + 5);
            format!("{}{}\n", &text[..at], "00".repeat(32))
        });
    }),
    change("keyring: a provider behind escapes", |data, trap| {
        let program = trap.program().display().to_string();
        set(data, "provider", &format!("\"\\u0063ommand:{program}\""));
    }),
    change("keyring: Argon2id of 64 lanes", |data, _| {
        set(data, "provider", "\"passphrase:\"");
        passphrase(data, 65536, 3);
        set(data, "lanes", "64");
    }),
    change("keyring: another derivation", |data, _| {
        set(data, "provider", "\"passphrase:\"");
        passphrase(data, 65536, 3);
        set(data, "kdf", "\"md5\"");
    }),
    change("keyring: Argon2id of 4 GiB", |data, _| {
        set(data, "provider", "\"passphrase:\"");
        passphrase(data, 4 << 20, 1024);
    }),
    change("keyring: 100,000 generations", |data, _| {
        edit(&keyring(data), |text| {
            let start = text.find("\"generations\": [").map_or(0, |at| at + 16);
            let end = text.rfind("\n  ]").unwrap_or(text.len());
            let one = text[start..end].to_owned();
            let all = vec![one; 100_000].join(",");
            format!("{}{all}{}", &text[..start], &text[end..])
        });
    }),
    change("keyring: 1 GB", |data, _| lengthen(data, "pgseal/keyring")),
    change("keyring: a FIFO", |data, _| into_fifo(data, "pgseal/keyring")),
    change("keyring: a device", |data, _| into_device(data, "pgseal/keyring")),
    change("keyring: a link to elsewhere", |data, trap| {
        into_link(data, "pgseal/keyring", &trap.victim());
    }),
    change("keyring: of another user", |data, _| {
        let path = keyring(data);
        give_away(data, "pgseal/keyring");
        must(fs::set_permissions(&path, fs::Permissions::from_mode(0o644)), &path);
    }),
    change("keyring: removed", |data, _| must(fs::remove_file(keyring(data)), data)),
    change("keyring and relation map: removed", |data, _| {
        must(fs::remove_dir_all(data.join("pgseal")), data);
        must(fs::remove_file(data.join("global/pg_filenode.map")), data);
    }),
    change("keyring: a directory", |data, _| {
        let path = keyring(data);
        must(fs::remove_file(&path), &path);
        must(fs::create_dir(&path), &path);
    }),
    change("pgseal: of another user", |data, _| give_away(data, "pgseal")),
    change("pgseal: a file", |data, _| {
        must(fs::remove_dir_all(data.join("pgseal")), data);
        overwrite(data, "pgseal", b"nothing\n");
    }),
    change("pgseal: a link to elsewhere", |data, trap| {
        let victim = trap.dir.join("victim");
        into_link(data, "pgseal", &victim);
    }),
    change("postmaster.opts: another program", |data, trap| {
        let path = data.join("postmaster.opts");
        let text = format!("{} \"-D\" \"{}\"\n", trap.program().display(), data.display());
        must(fs::write(&path, text), &path);
    }),
    change("postmaster.opts: a FIFO", |data, _| into_fifo(data, "postmaster.opts")),
    not_for_servers("postmaster.opts: a link to elsewhere", |data, trap| {
        into_link(data, "postmaster.opts", &trap.victim());
    }),
    change("postmaster.pid: no process", |data, _| {
        overwrite(data, "postmaster.pid", b"no number\n");
    }),
    change("postmaster.pid: another process", |data, _| {
        let path = data.join("postmaster.pid");
        must(fs::write(&path, format!("1\n{}\n0\n5432\n/\n*\n", data.display())), &path);
    }),
    not_for_servers("postmaster.pid: a FIFO", |data, _| into_fifo(data, "postmaster.pid")),
    not_for_servers("postmaster.pid: a device", |data, _| into_device(data, "postmaster.pid")),
    not_for_servers("postmaster.pid: 1 GB", |data, _| lengthen(data, "postmaster.pid")),
    not_for_servers("postmaster.pid: a link to elsewhere", |data, trap| {
        into_link(data, "postmaster.pid", &trap.victim());
    }),
    change("pgseal/conversion: decrypt, another configuration file", |data, trap| {
        journal(data, "decrypt", "finish", &trap.victim(), "15");
    }),
    change("pgseal/conversion: encrypt, another configuration file", |data, trap| {
        journal(data, "encrypt", "finish", &trap.victim(), "15");
    }),
    change("pgseal/conversion: a version that is a path", |data, trap| {
        let path = trap.dir.display().to_string();
        journal(data, "encrypt", "finish", &trap.victim(), &path);
    }),
    change("pgseal/conversion: encrypt, begun", |data, trap| {
        journal(data, "encrypt", "prepare", &trap.victim(), "15");
    }),
    change("pgseal/conversion: rekey among its files, the control file a link", |data, trap| {
        journal(data, "rekey", "convert", &trap.victim(), "15");
        into_link(data, "pgseal/pg_control", &trap.victim());
    }),
    change("pgseal/conversion: rekey, begun, the keyring before a link", |data, trap| {
        journal(data, "rekey", "prepare", &trap.victim(), "15");
        into_link(data, "pgseal/keyring.before", &trap.victim());
    }),
    change("pgseal/conversion: no journal", |data, _| overwrite(data, "pgseal/conversion", b"{}")),
    change("pgseal/conversion: 1 GB", |data, _| lengthen(data, "pgseal/conversion")),
    change("pgseal/conversion: of another user", |data, trap| {
        journal(data, "decrypt", "finish", &trap.victim(), "15");
        give_away(data, "pgseal/conversion");
    }),
    change("pgseal/conversion: a FIFO", |data, _| into_fifo(data, "pgseal/conversion")),
    change("pgseal/conversion: a device", |data, _| into_device(data, "pgseal/conversion")),
    change("pgseal/conversion: a link to elsewhere", |data, trap| {
        into_link(data, "pgseal/conversion", &trap.victim());
    }),
    change("pgseal/config: a FIFO", |data, _| into_fifo(data, "pgseal/config")),
    change("pgseal/config: a link to elsewhere", |data, trap| {
        into_link(data, "pgseal/config", &trap.victim());
    }),
    change("pgseal/config: 1 GB", |data, _| lengthen(data, "pgseal/config")),
    change("pgseal/manifest: a FIFO", |data, _| into_fifo(data, "pgseal/manifest")),
    change("pgseal/manifest: a link to elsewhere", |data, trap| {
        into_link(data, "pgseal/manifest", &trap.victim());
    }),
    change("pgseal/manifest: 1 GB", |data, _| lengthen(data, "pgseal/manifest")),
    change("pgseal/control: a FIFO", |data, _| into_fifo(data, "pgseal/control")),
    change("pgseal/control: a link to elsewhere", |data, trap| {
        into_link(data, "pgseal/control", &trap.victim());
    }),
    change("pgseal/control: 1 GB", |data, _| lengthen(data, "pgseal/control")),
    change("pgseal/escrow.json: a FIFO", |data, _| into_fifo(data, "pgseal/escrow.json")),
    change("pgseal/escrow.json: a device", |data, _| into_device(data, "pgseal/escrow.json")),
    change("pgseal/escrow.json: a link to elsewhere", |data, trap| {
        into_link(data, "pgseal/escrow.json", &trap.victim());
    }),
    change("pgseal/escrow.json: 1 GB", |data, _| lengthen(data, "pgseal/escrow.json")),
    change("PG_VERSION: 1 GB", |data, _| lengthen(data, "PG_VERSION")),
    not_for_servers("PG_VERSION: a device", |data, _| into_device(data, "PG_VERSION")),
    change("PG_VERSION: a link to elsewhere", |data, trap| {
        into_link(data, "PG_VERSION", &trap.victim());
    }),
    change("PG_VERSION: a path", |data, trap| {
        must(fs::write(data.join("PG_VERSION"), format!("{}\n", trap.dir.display())), data);
    }),
    not_for_servers("PG_VERSION: a FIFO", |data, _| into_fifo(data, "PG_VERSION")),
    not_for_servers("postgresql.conf: a FIFO", |data, _| into_fifo(data, "postgresql.conf")),
    not_for_servers("postgresql.conf: a link to elsewhere", |data, trap| {
        into_link(data, "postgresql.conf", &trap.victim());
    }),
    not_for_servers("postgresql.conf: a device", |data, _| into_device(data, "postgresql.conf")),
    not_for_servers("postgresql.conf: of another user", |data, _| {
        give_away(data, "postgresql.conf");
    }),
    // The server obeys its configuration file as always; other programs must not.
    not_for_servers("postgresql.conf: programs and modules of the enemy", |data, trap| {
        let (program, dir) = (trap.program(), trap.dir.display().to_string());
        let program = program.display();
        let text = format!(
            "shared_preload_libraries = 'pgseal_guard,{program}'\narchive_mode = on\n\
             archive_command = '{program}'\nrestore_command = '{program}'\n\
             ssl_passphrase_command = '{program}'\nexternal_pid_file = '{dir}/victim/pid'\n\
             log_directory = '{dir}/victim'\nlogging_collector = on\n"
        );
        overwrite(data, "postgresql.conf", text.as_bytes());
    }),
    not_for_servers("postgresql.conf: includes a FIFO", |data, trap| {
        let text = format!("include '{}'\n", trap.fifo().display());
        overwrite(data, "postgresql.conf", text.as_bytes());
    }),
    not_for_servers("postgresql.auto.conf: a FIFO", |data, _| {
        into_fifo(data, "postgresql.auto.conf");
    }),
    not_for_servers("postgresql.auto.conf: a link to elsewhere", |data, trap| {
        into_link(data, "postgresql.auto.conf", &trap.victim());
    }),
    not_for_servers("pg_hba.conf: a FIFO", |data, _| into_fifo(data, "pg_hba.conf")),
    not_for_servers("pg_hba.conf: a link to elsewhere", |data, trap| {
        into_link(data, "pg_hba.conf", &trap.victim());
    }),
    not_for_servers("server.crt, server.key: links to elsewhere", |data, trap| {
        into_link(data, "server.crt", &trap.victim());
        into_link(data, "server.key", &trap.victim());
    }),
    not_for_servers("backup_label, standby.signal: FIFOs", |data, _| {
        into_fifo(data, "backup_label");
        into_fifo(data, "standby.signal");
    }),
    not_for_servers("pg_control: a FIFO", |data, _| into_fifo(data, "global/pg_control")),
    not_for_servers("pg_control: a device", |data, _| into_device(data, "global/pg_control")),
    not_for_servers("pg_control: a link to elsewhere", |data, trap| {
        into_link(data, "global/pg_control", &trap.victim());
    }),
    change("pg_control: noise", |data, _| overwrite(data, "global/pg_control", &[0xA5; 8192])),
    change("a table space: the whole system", |data, _| {
        must(symlink("/", data.join("pg_tblspc/99999")), data);
    }),
    not_for_servers("a relation: a link to elsewhere", |data, trap| {
        into_link(data, "global/1262", &trap.victim());
    }),
    not_for_servers("a relation: a FIFO", |data, _| into_fifo(data, "global/1262")),
    not_for_servers("a relation: a device", |data, _| into_device(data, "global/1262")),
    not_for_servers("the relation map: a FIFO", |data, _| {
        into_fifo(data, "global/pg_filenode.map");
    }),
    not_for_servers("pg_wal: a link to elsewhere", |data, trap| {
        into_link(data, "pg_wal", &trap.dir.join("victim"));
    }),
    change("a directory that leads to itself", |data, _| {
        must(symlink("..", data.join("base/loop")), data);
    }),
];
