#!/usr/bin/env bash
# rpm-test-inside.sh MAJOR: rpm.sh runs this in a clean root of Debian, which has no packages for
# rpm but these. So rpm is told not to ask for what they need, and Debian's server stands where the
# packages of the PostgreSQL project have theirs. Installs the packages, uses a sealed cluster,
# upgrades and removes them under its server.
set -euo pipefail

major=$1
bin=/usr/pgsql-$major/bin
data=/var/lib/pgsql/$major/data
step() { printf 'inside: %s\n' "$*"; }
die() {
    printf 'inside: FAILED: %s\n' "$*" >&2
    exit 1
}
as_postgres() { (cd / && setpriv --reuid=postgres --regid=postgres --init-groups -- "$@"); }
sql() { as_postgres psql -X -A -t -q -v ON_ERROR_STOP=1 -h /tmp -d "${database:-postgres}" -c "$1"; }
# As systemd would with the drop-in of 'pgseal env --format systemd'.
server() {
    local settings=()
    mapfile -t settings < <(sed -nE 's/^Environment=//p' /etc/systemd/system/postgresql-"$major".service.d/pgseal.conf | sed -E "s/^[\"'](.*)[\"']$/\1/")
    as_postgres env "${settings[@]}" "$bin/pg_ctl" -s -w -D "$data" -l /tmp/log -o "-k /tmp -c listen_addresses=''" "$@"
}
# Debian warns of installing packages by rpm.
rpms() {
    local option=$1
    shift
    rpm --force-debian --nodeps "$option" "$@" >/rpm.log 2>&1 || { cat /rpm.log; die "rpm $option $*"; }
}
stop_all() {
    local status=$?
    trap - EXIT
    server stop -m immediate >/dev/null 2>&1 || true
    exit "$status"
}

step "PostgreSQL $major in /usr/pgsql-$major"
apt-get -qq update
mkdir -p /etc/postgresql-common
printf 'create_main_cluster = false\n' >/etc/postgresql-common/createcluster.conf
apt-get -qq -y -o Dpkg::Use-Pty=0 install --no-install-recommends rpm "postgresql-$major" >/install.log 2>&1 ||
    { tail -n 30 /install.log; die "apt install"; }
mkdir -p "/usr/pgsql-$major"
ln -s "/usr/lib/postgresql/$major/bin" "/usr/lib/postgresql/$major/lib" "/usr/pgsql-$major/"
ln -s "/usr/share/postgresql/$major" "/usr/pgsql-$major/share"
install -d -o postgres -g postgres -m 700 /var/lib/pgsql "/var/lib/pgsql/$major"
trap stop_all EXIT

step "what rpm asks for"
if rpm --force-debian -i /rpms/*.rpm >/rpm.log 2>&1; then die "rpm installs the packages without the server"; fi
for need in "postgresql$major-server is needed by pgseal_$major-" 'libc.so.6(GLIBC_2.34)(64bit) is needed by pgseal-'; do
    grep -qF "$need" /rpm.log || { cat /rpm.log; die "rpm does not say: $need"; }
done
[ ! -e /usr/bin/pgseal ] || die "rpm installed a part"

step "rpm -i"
rpms -i /rpms/*.rpm
[ ! -s /rpm.log ] || { cat /rpm.log; die "rpm -i has something to say"; }
rpm -V --nodeps pgseal pgseal-lab "pgseal_$major" || die "rpm -V"
for file in /usr/bin/pgseal /usr/lib/pgseal/libpgseal.so "/usr/pgsql-$major/lib/pgseal_guard.so" \
    "/usr/pgsql-$major/lib/pgseal.so" "/usr/pgsql-$major/share/extension/pgseal.control" \
    /usr/share/man/man1/pgseal.1.gz /usr/share/man/man1/pgseal-key-rotate.1.gz /usr/share/man/man1/pgseal-lab.1.gz \
    /usr/share/bash-completion/completions/pgseal /usr/bin/pgseal-lab /usr/share/licenses/pgseal/LICENSE-MIT \
    /usr/share/doc/pgseal/examples/postgresql-drop-in.conf /usr/share/doc/pgseal/docs/rpm.md; do
    rpm -qf "$file" >/dev/null || die "no package has $file"
done
if rpm -ql pgseal | grep -q pgseal-lab; then die "the package pgseal has files of pgseal-lab"; fi
for file in THIRD-PARTY-NOTICES.txt pgseal.cdx.json; do
    grep -q aws-lc-sys "/usr/share/doc/pgseal/$file" || die "$file does not name AWS-LC"
done
pgseal --licenses | grep -q AWS-LC || die "pgseal --licenses does not name AWS-LC"
[ "$(stat -c '%U %a' /var/lib/pgseal)" = "postgres 755" ] || die "/var/lib/pgseal: $(stat -c '%U %a' /var/lib/pgseal)"
[ "$(pgseal provider list)" = $'aws-kms:\nkmip:\npkcs11:\ntpm2:\nvault:' ] || die "pgseal does not find its plugins"
[ "$(pgseal --version)" = "pgseal $(rpm -q --qf '%{VERSION}' pgseal)" ] || die "pgseal --version"

step "pgseal lab, then without the package pgseal-lab"
pgseal lab --help >/dev/null || die "pgseal lab"
rpms -e pgseal-lab
status=0
pgseal lab --help >/lab.log 2>&1 || status=$?
[ "$status" = 20 ] && grep -q 'package pgseal-lab' /lab.log || { cat /lab.log; die "pgseal lab without its package: $status"; }

step "a sealed cluster, with the commands of docs/rpm.md"
install -d /etc/pgseal "/etc/systemd/system/postgresql-$major.service.d"
pgseal key new -o /etc/pgseal/main.key >/dev/null
chown postgres: /etc/pgseal/main.key
as_postgres pgseal initdb -k -K file:/etc/pgseal/main.key --bindir "$bin" -D "$data" >/initdb.log || { cat /initdb.log; die "initdb"; }
as_postgres pgseal env -D "$data" --format systemd >"/etc/systemd/system/postgresql-$major.service.d/pgseal.conf"
server start || { cat /tmp/log; die "the server does not start"; }
sql "CREATE TABLE t AS SELECT g, 'canary-rpm-Hc3v' || g AS v FROM generate_series(1, 1000) AS g"
sql "CHECKPOINT"
if grep -rqaF canary-rpm "$data"; then die "plain text on disk"; fi
sql "CREATE EXTENSION pgseal"
sql "ALTER SYSTEM SET pgseal.provider = 'file:/etc/pgseal/main.key'"
sql "SELECT pg_reload_conf()" >/dev/null
sleep 1
sql "SELECT pgseal.create_domain('default')" >/dev/null
sql "CREATE TABLE s (id sealed_int8 PRIMARY KEY); INSERT INTO s VALUES (42)"
[ "$(sql "SELECT id FROM s")" = 42 ] || die "sealed columns"
as_postgres pgseal verify --quiet "$data" || die "verify"
# Without the drop-in it does not start.
server stop -m fast
if as_postgres "$bin/pg_ctl" -s -w -D "$data" -l /tmp/refused -o '-k /tmp' start >/refused.log 2>&1; then
    die "it starts without the library"
fi
server start

step "an upgrade under the running server"
postmaster=$(head -n 1 "$data/postmaster.pid")
rpms -U "/next/pgseal-$(rpm -q --qf '%{VERSION}' pgseal)-2.$(uname -m).rpm" "/next/pgseal_$major"-[0-9]*.rpm
[ "$(rpm -q --qf '%{RELEASE}' pgseal)" = 2 ] || die "pgseal is not the newer one"
grep -qF "$data (process $postmaster)" /rpm.log || { cat /rpm.log; die "the upgrade names no server"; }
if grep -q WARNING /rpm.log; then cat /rpm.log; die "the upgrade warns as if it removed"; fi
grep -q '/libpgseal\.so.* (deleted)$' "/proc/$postmaster/maps" || die "the server's library was not replaced"
sql "INSERT INTO t SELECT g, 'canary-rpm-Hc3v' || g FROM generate_series(1, 1000) AS g; CHECKPOINT"
server restart || { cat /tmp/log; die "restart with the newer library"; }
[ "$(sql "SELECT count(*) FROM t, s")" = 2000 ] || die "rows after the restart"
if grep -rqaF canary-rpm "$data"; then die "plain text on disk after the upgrade"; fi

step "removal under the running server"
postmaster=$(head -n 1 "$data/postmaster.pid")
rpms -e pgseal "pgseal_$major"
grep -qF "$data (process $postmaster)" /rpm.log && grep -q 'cannot be started$' /rpm.log ||
    { cat /rpm.log; die "the removal does not warn"; }
[ ! -e /usr/lib/pgseal/libpgseal.so ] || die "the library is still there"
[ -e "$data/pgseal/keyring" ] && [ -e /etc/pgseal/main.key ] || die "the removal took a keyring or a key"
server stop -m fast
if server start >/refused.log 2>&1; then die "it starts without the packages"; fi
rpms -i "/next/pgseal-"[0-9]*.rpm "/next/pgseal_$major"-[0-9]*.rpm
server start || { cat /tmp/log; die "it does not start with the packages again"; }
[ "$(sql "SELECT count(*) FROM t, s")" = 2000 ] || die "rows after the packages came back"
server stop -m fast
as_postgres pgseal verify --quiet "$data" || die "verify after the packages came back"
rpms -e pgseal "pgseal_$major"
[ ! -s /rpm.log ] || { cat /rpm.log; die "a word about servers, and none runs"; }
[ ! -e /usr/lib/pgseal ] && [ ! -e /usr/share/doc/pgseal ] || die "the packages left files"
[ -n "$(ls /var/lib/pgseal)" ] || die "the removal took what pgseal remembers"
step "all passed"
