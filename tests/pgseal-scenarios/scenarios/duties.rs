//! docs/duties.md with real Unix users: the test runs the commands of the page as root, in a mount
//! namespace of its own with a copy of `/etc`, so that the machine gets no users and no files. Then
//! each user tries what the page says that they may and may not do.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use pgseal_scenarios::{is_root, not_applicable, programs};
use pgseal_testkit::bindir;

const PAGE: &str = include_str!("../../../docs/duties.md");

/// What surrounds the commands of the page: places that are empty, the programs under test, and
/// words to try with. `$1`: a directory of the test, `$2`: PostgreSQL's programs.
const PRELUDE: &str = r#"
work=$1 bindir=$2
cp -a /etc "$work/etc"
mount --bind "$work/etc" /etc
for place in /srv /usr/local/bin /usr/local/sbin /var/log /root; do mount -t tmpfs tmpfs "$place"; done
chmod 700 /root
cp "$work"/bin/* /usr/local/bin/
rm -rf /etc/pgseal /etc/sudoers.d/pgseal
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:$bindir
unset PGDATA ${!PGSEAL_@}
cd /
server() { runuser -u postgres -- pgseal run -- pg_ctl -D /srv/pg -l /srv/log -w "$@" >/dev/null; }
psql() { runuser -u postgres -- "$bindir/psql" -h /srv/sockets -d postgres -Atqc "$1"; }
as() { local user=$1; shift; runuser -u "$user" -- bash -c "$*"; }
may() { local said; said=$(as "$@" 2>&1) || { echo "MAY NOT, but should: $*: $said"; exit 1; }; }
may_not() { ! as "$@" >/dev/null 2>&1 || { echo "MAY, but should not: $*"; exit 1; }; }
trail() { grep -c "$1" /var/log/pgseal/audit.log || true; }
"#;

/// What each user tries, after the commands of the page.
const TRIALS: &str = r#"
install -d -o postgres -m 700 /srv/sockets
install -o postgres -m 600 /dev/null /srv/log
printf "unix_socket_directories = '/srv/sockets'\nlisten_addresses = ''\n" >>/srv/pg/postgresql.conf
trap 'server -m immediate stop || true' EXIT

# The server unlocks, and leaves a line.
before=$(trail '"program":"postgres","event":"unlock"')
server start
[ "$(trail '"program":"postgres","event":"unlock"')" -gt "$before" ]
psql "create table t as select 'canary-duties-Xw5' || g as v from generate_series(1, 100) g"
psql checkpoint

# pgkeys rotates, renews and checks, and does nothing else.
may pgkeys sudo -n /usr/local/sbin/pgseal-rotate
may pgkeys sudo -n /usr/local/bin/pgseal key renew -D /srv/pg
may pgkeys sudo -n /usr/local/bin/pgseal key check -D /srv/pg
for command in 'cat /etc/pgseal/main.key' 'cat /etc/pgseal/2*.key' 'cat /srv/pg/pgseal/keyring' \
    'ls /srv/pg' 'sudo -n cat /etc/pgseal/main.key' \
    'sudo -n /usr/local/bin/pgseal key rotate -D /srv/pg -K "command:id"' \
    'sudo -n /usr/local/bin/pgseal key backup -D /srv/pg' \
    'sudo -n /usr/local/bin/pgseal key destroy -D /srv/pg' \
    'sudo -n /usr/local/sbin/pgseal-rotate extra' \
    'sudo -n PGSEAL_AUDIT=off /usr/local/sbin/pgseal-rotate' \
    'pgseal key check /srv/pg' 'echo >>/var/log/pgseal/audit.log'; do
    may_not pgkeys "$command"
done
[ "$(trail '"user":"root".*"event":"rotate","outcome":"done"')" = 1 ]
server restart
[ "$(psql 'select count(*) from t')" = 100 ]

# pgcopy reads the sealed files, with the keyring, and opens nothing.
install -d -o pgcopy -m 700 /srv/backup
may pgcopy 'tar -C /srv -cf /srv/backup/pg.tar "--exclude=postmaster.*" pg || test $? = 1'
mkdir "$work/copy"
tar -C "$work/copy" -xf /srv/backup/pg.tar
[ -s "$work/copy/pg/pgseal/keyring" ]
! grep -r canary-duties "$work/copy" || exit 1
for command in 'cat /etc/pgseal/main.key' 'cat /etc/pgseal/2*.key' 'pgseal key check /srv/pg' \
    'pgseal verify /srv/pg' 'cat /var/log/pgseal/audit.log' 'sudo -n true' \
    'sudo -n /usr/local/sbin/pgseal-rotate' 'touch /srv/pg/x'; do
    may_not pgcopy "$command"
done

# pgaudit reads the trail and checks its chain.
may pgaudit 'grep -q rotate /var/log/pgseal/audit.log'
may pgaudit 'pgseal audit verify /var/log/pgseal/audit.log'
for command in 'cat /srv/pg/pgseal/keyring' 'cat /etc/pgseal/main.key' 'pgseal key check /srv/pg' \
    'echo >>/var/log/pgseal/audit.log' 'rm /var/log/pgseal/audit.log' 'sudo -n true'; do
    may_not pgaudit "$command"
done

# The shares of before the renewal lack the new data key; root makes new ones, as the page says.
rm /root/share-*
pgseal key backup /srv/pg --shares 2-of-3 -o /root/share

# One share restores nothing; two do, and the server starts with the new key.
server stop
rm /srv/pg/pgseal/keyring
install -d -o pgkeys -m 700 /srv/shares
cp /root/share-1 /root/share-3 /srv/shares/
chown pgkeys /srv/shares/*
may_not pgkeys 'cat /srv/shares/share-1 | sudo -n /usr/local/sbin/pgseal-restore'
may pgkeys 'cat /srv/shares/share-1 /srv/shares/share-3 | sudo -n /usr/local/sbin/pgseal-restore'
key=$(ls -t /etc/pgseal/2*.key | head -n 1)
pgseal env -D /srv/pg --register -K "file:$key" >/dev/null
server start
[ "$(psql 'select count(*) from t')" = 100 ]
[ "$(trail '"event":"restore","outcome":"done"')" = 1 ]

# The trail as a whole, with its MACs. Without it, nothing is unlocked.
pgseal audit verify /var/log/pgseal/audit.log -D /srv/pg | grep 'MACs are right'
server stop
mv /var/log/pgseal /var/log/away
! server start || exit 1
grep -q 'the audit trail' /srv/log
mv /var/log/away /var/log/pgseal
server start
server stop
trap - EXIT
echo EACH WAS TRIED
"#;

#[test]
fn each_user_does_their_duty_and_no_more() {
    let test = "each_user_does_their_duty_and_no_more";
    if !is_root() {
        not_applicable(test, "needs root, to make users");
        return;
    }
    let can =
        Command::new("unshare").args(["--mount", "--propagation", "private", "true"]).status();
    if !can.is_ok_and(|status| status.success()) {
        not_applicable(test, "this root may make no mount namespace");
        return;
    }
    for needed in ["/usr/bin/sudo", "/usr/sbin/useradd", "/usr/sbin/runuser"] {
        assert!(Path::new(needed).exists(), "{needed}: run scripts/setup.sh test");
    }
    let work = std::env::temp_dir().join(format!("pgseal-duties-{}", std::process::id()));
    fs::create_dir_all(work.join("bin")).expect("a directory");
    fs::set_permissions(&work, fs::Permissions::from_mode(0o711)).expect("chmod");
    let built = programs();
    let all = [Some(built.pgseal), built.library, built.guard];
    for program in all.into_iter().flatten() {
        let name = program.file_name().expect("a name");
        fs::copy(&program, work.join("bin").join(name)).expect("a copy");
    }
    // "```hcl" is a policy and no command.
    let blocks = PAGE.split("```").skip(1).step_by(2).filter(|block| block.starts_with('\n'));
    let commands: Vec<&str> = blocks.collect();
    assert_eq!(commands.len(), 3, "blocks of commands of the page");
    let script = format!("{PRELUDE}\n{}\n{TRIALS}", commands.join("\n"));
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "bash", "-euo", "pipefail", "-c", &script])
        .arg("bash")
        .arg(&work)
        .arg(bindir().expect("PostgreSQL"))
        .output()
        .expect("unshare runs");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    fs::remove_dir_all(&work).expect("the work of the test goes");
    assert!(output.status.success() && said.contains("EACH WAS TRIED"), "{said}");
}
