//! The test vectors in `vectors/escrow`. In each file, the lines before the copy say what opens the
//! copy and which keys it holds, or why it must be refused. With `PGSEAL_BLESS=1` in the
//! environment, the tests write the vectors that are made from fixed values.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use data_encoding::HEXLOWER;
use pgseal_core::Suite;

use super::*;

fn dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors/escrow")
}

fn run_of<const N: usize>(first: u8) -> [u8; N] {
    std::array::from_fn(|at| first.wrapping_add(u8::try_from(at).unwrap()))
}

fn data_key(first: u8) -> DataKey {
    DataKey::init_with(|key| {
        *key = run_of(first);
        Ok::<(), ()>(())
    })
    .unwrap()
}

/// Two generations, 1 and 3, with every random value fixed.
fn fixed(opened_by: OpenedBy, secret: &Secret32, share: Option<Share>) -> EscrowCopy {
    let mut keys = KeySet::new(KeyringId(run_of(0xA0)), Suite::Aes256Gcm, Generation(3));
    keys.insert(Generation(1), data_key(0x40));
    keys.insert(Generation(3), data_key(0x80));
    let generation = |number| EscrowGeneration {
        generation: Generation(number),
        created: format!("2026-01-31T12:00:0{number}Z"),
        fingerprint: wrap::fingerprint(
            keys.get(Generation(number)).unwrap().bytes(),
            keys.keyring_id,
        )
        .unwrap(),
    };
    let copy = EscrowCopy {
        keyring_id: keys.keyring_id,
        suites: keys.suites(),
        active: keys.active(),
        made: "2026-02-01T08:30:00Z".to_owned(),
        generations: vec![generation(1), generation(3)],
        opened_by,
        nonce: run_of(0x60),
        sealed: Vec::new(),
        tag: [0; 16],
        share,
        origin: "vector".to_owned(),
    };
    copy.seal(&keys, secret).unwrap()
}

fn secret(first: u8) -> Secret32 {
    let mut secret = Secret32::zero();
    *secret = run_of(first);
    secret
}

/// A share of the secret on a quadratic polynomial. For byte n of the secret, its coefficients are
/// 0x20 + n (the secret), 0x11 + n and 0x31 + n.
fn fixed_share(index: u8) -> Share {
    use vsss_rs::Gf256;
    let value = std::array::from_fn(|at| {
        let at = u8::try_from(at).unwrap();
        let x = Gf256(index);
        (Gf256(0x20 + at) + Gf256(0x11 + at) * x + Gf256(0x31 + at) * x * x).0
    });
    Share { index, value: Zeroizing::new(value) }
}

fn blessed() -> Vec<(&'static str, String)> {
    let opens = "keyring: a0a1a2a3a4a5a6a7a8a9aaabacadaeaf\nactive: 3\n";
    let keys = format!(
        "generation 1: {}\ngeneration 3: {}\n",
        HEXLOWER.encode(&run_of::<32>(0x40)),
        HEXLOWER.encode(&run_of::<32>(0x80))
    );
    let text = |copy: &EscrowCopy| copy.to_text().unwrap().to_string();
    let params = Argon2idParams::stored(1024, 2, 1, run_of(0x50)).unwrap();
    let kek = params.derive(b"correct horse battery staple").unwrap();
    let passphrase = text(&fixed(OpenedBy::Passphrase(params), &copy_of(&kek), None));
    let check = wrap::key_check(&run_of(0x20), KeyringId(run_of(0xA0))).unwrap();
    let key = text(&fixed(OpenedBy::Key(check), &secret(0x20), None));
    let shared = OpenedBy::Shares { threshold: 3, limit: 5 };
    let share = |index| text(&fixed(shared.clone(), &secret(0x20), Some(fixed_share(index))));
    let changed_line = |text: &str, number: usize| {
        let line = text.lines().find(|line| line.starts_with(&format!("{number:>3}. "))).unwrap();
        let symbol = if line.as_bytes()[5] == b'7' { "8" } else { "7" };
        let mut changed = line.to_owned();
        changed.replace_range(5..6, symbol);
        text.replace(line, &changed)
    };
    let typed = key.to_lowercase().replace("-----begin pgseal", "-----BEGIN PGSEAL");
    let typed = typed
        .replace("-----end pgseal", "-----END PGSEAL")
        .replace("escrow copy-----", "ESCROW COPY-----");
    let key_line = format!("key: {}\n", HEXLOWER.encode(&run_of::<32>(0x20)));
    vec![
        (
            "ok-passphrase",
            format!("passphrase: correct horse battery staple\n{opens}{keys}\n{passphrase}"),
        ),
        ("ok-key", format!("{key_line}{opens}{keys}\n{key}")),
        ("ok-typed", format!("comment: in small letters\n{key_line}{opens}{keys}\n{typed}")),
        (
            "ok-shares",
            format!("shares: 3\n{opens}{keys}\n{}\n{}\n{}", share(2), share(5), share(1)),
        ),
        (
            "bad-too-few-shares",
            format!("shares: 2\nrefused: 2 of the 3\n\n{}\n{}", share(1), share(4)),
        ),
        ("bad-line", format!("{key_line}refused: line 4 of\n\n{}", changed_line(&key, 4))),
        ("bad-missing-end", {
            let cut: Vec<&str> = key.lines().filter(|line| !line.starts_with("  9.")).collect();
            format!(
                "{key_line}refused: line 9 of the escrow copy is missing\n\n{}\n",
                cut.join("\n")
            )
        }),
        (
            "bad-passphrase",
            format!(
                "passphrase: Correct horse\nrefused: the passphrase does not open\n\n{passphrase}"
            ),
        ),
    ]
}

#[test]
fn the_vectors_hold() {
    if std::env::var_os("PGSEAL_BLESS").is_some() {
        fs::create_dir_all(dir()).unwrap();
        for (name, text) in blessed() {
            fs::write(dir().join(name).with_extension("txt"), text).unwrap();
        }
    }
    let mut seen = 0;
    for item in fs::read_dir(dir()).unwrap() {
        let path = item.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        check(&text, &path.display().to_string());
        seen += 1;
    }
    assert!(seen >= 8, "{seen} vectors");
}

#[test]
fn the_writer_makes_the_same_vectors() {
    for (name, text) in blessed() {
        let path = dir().join(name).with_extension("txt");
        assert!(fs::read_to_string(&path).unwrap() == text, "{}", path.display());
    }
}

fn check(text: &str, name: &str) {
    let head = text.split("-----BEGIN").next().unwrap();
    let field =
        |wanted: &str| head.lines().find_map(|line| line.strip_prefix(wanted)?.strip_prefix(": "));
    let result = read_all(text, name).and_then(|copies| {
        if field("shares").is_some() {
            return open_shares(&copies);
        }
        let kek = match field("passphrase") {
            Some(words) => copies[0].passphrase_params().unwrap().derive(words.as_bytes())?,
            None => Kek::from_text(field("key").unwrap().as_bytes(), name)?,
        };
        open(&copies[0], &kek)
    });
    let opened = match (result, field("refused")) {
        (Err(error), Some(words)) => {
            assert!(error.to_string().contains(words), "{name}: {error}");
            return;
        }
        (Err(error), None) => panic!("{name}: {error}"),
        (Ok(_), Some(_)) => panic!("{name}: accepted"),
        (Ok(opened), None) => opened,
    };
    let keys = opened.keys();
    assert_eq!(keys.keyring_id.to_string(), field("keyring").unwrap(), "{name}");
    assert_eq!(keys.active().to_string(), field("active").unwrap(), "{name}");
    let mut listed = String::new();
    for generation in keys.generations() {
        let key = HEXLOWER.encode(keys.get(generation).unwrap().bytes());
        writeln!(listed, "generation {generation}: {key}").unwrap();
    }
    let wanted: String = head
        .lines()
        .filter(|line| line.starts_with("generation "))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(listed, wanted, "{name}");
}
