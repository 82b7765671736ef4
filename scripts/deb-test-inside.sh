#!/usr/bin/env bash
# deb.sh runs this in a clean root. Installs the packages with apt, makes sealed clusters in the two
# ways that the documentation describes, and uses them through postgresql-common.
set -euo pipefail

step() { printf 'inside: %s\n' "$*"; }
die() {
    printf 'inside: FAILED: %s\n' "$*" >&2
    exit 1
}
as_postgres() { setpriv --reuid=postgres --regid=postgres --init-groups -- "$@"; }
sql() { as_postgres psql -X -A -t -q -v ON_ERROR_STOP=1 --cluster "$cluster" -d "${database:-postgres}" -c "$1"; }
clusters=()
stop_all() {
    local status=$?
    trap - EXIT
    for cluster in "${clusters[@]}"; do
        pg_ctlcluster "${cluster%/*}" "${cluster#*/}" stop -m fast >/dev/null 2>&1 || true
    done
    exit "$status"
}
trap stop_all EXIT

step "apt install"
apt-get -qq update
# Install every package with its dependencies. This must not make a cluster.
mkdir -p /etc/postgresql-common
printf 'create_main_cluster = false\n' >/etc/postgresql-common/createcluster.conf
apt-get -qq -y -o Dpkg::Use-Pty=0 install --no-install-recommends /debs/*.deb >/install.log 2>&1 ||
    { tail -n 30 /install.log; die "apt install"; }
major=$(find /usr/lib/postgresql -mindepth 1 -maxdepth 1 -printf '%f\n' | sort -n | tail -n 1)
for file in /usr/bin/pgseal /usr/lib/pgseal/libpgseal.so /usr/lib/pgseal/providers/pgseal-provider-aws-kms \
    /usr/lib/pgseal/providers/pgseal-provider-kmip \
    /usr/lib/pgseal/providers/pgseal-provider-pkcs11 \
    /usr/lib/pgseal/providers/pgseal-provider-tpm2 /usr/lib/pgseal/providers/pgseal-provider-vault \
    "/usr/lib/postgresql/$major/lib/pgseal_guard.so" \
    /usr/share/man/man1/pgseal.1.gz /usr/share/bash-completion/completions/pgseal \
    /usr/bin/pgseal-lab /usr/share/man/man1/pgseal-lab.1.gz /usr/share/bash-completion/completions/pgseal-lab \
    /usr/share/doc/pgseal/examples/postgresql-drop-in.conf; do
    [ -e "$file" ] || die "$file is not there"
done
# debhelper compresses what is long.
for file in THIRD-PARTY-NOTICES.txt pgseal.cdx.json; do
    zcat -f "/usr/share/doc/pgseal/$file"* | grep aws-lc-sys >/dev/null || die "$file does not name AWS-LC"
done
pgseal --version
[ "$(stat -c '%U %a' /var/lib/pgseal)" = "postgres 755" ] || die "/var/lib/pgseal: $(stat -c '%U %a' /var/lib/pgseal)"
[ "$(pgseal provider list)" = $'aws-kms:\nkmip:\npkcs11:\ntpm2:\nvault:' ] || die "pgseal does not find its plugins"

step "pgseal lab, then without the package pgseal-lab"
pgseal lab modes --profile tiny --output /lab >/lab.log 2>&1 || { tail -n 30 /lab.log; die "pgseal lab modes"; }
pgseal advise --results /lab >/advise.log 2>&1 || { cat /advise.log; die "pgseal advise"; }
apt-get -qq -y -o Dpkg::Use-Pty=0 purge pgseal-lab >/purge.log 2>&1 || { tail /purge.log; die "purge of pgseal-lab"; }
[ ! -e /usr/bin/pgseal-lab ] || die "the package pgseal-lab left files"
status=0
pgseal lab --help >/lab.log 2>&1 || status=$?
[ "$status" = 20 ] && grep -q 'package pgseal-lab' /lab.log || { cat /lab.log; die "pgseal lab without its package: $status"; }

install -d -m 755 /etc/pgseal
pgseal key new -o /etc/pgseal/main.key >/dev/null
chown postgres: /etc/pgseal/main.key

# use CLUSTER: writes a table with a marker, and checks that no file shows the marker.
use() {
    local cluster=$1 marker=canary-deb-Kp4x data
    data=$(pg_lsclusters -h | awk -v v="${cluster%/*}" -v n="${cluster#*/}" '$1 == v && $2 == n { print $6 }')
    clusters+=("$cluster")
    pg_ctlcluster "${cluster%/*}" "${cluster#*/}" start || {
        cat /var/log/postgresql/*.log
        die "$cluster does not start"
    }
    pg_lsclusters -h | awk -v v="${cluster%/*}" -v n="${cluster#*/}" '$1 == v && $2 == n && $4 == "online" { found = 1 } END { exit !found }' ||
        die "$cluster is not online"
    sql "CREATE TABLE t AS SELECT g, '$marker' || g AS v FROM generate_series(1, 1000) AS g"
    sql "CHECKPOINT"
    if grep -rqaF "$marker" "$data"; then die "$cluster shows the marker on disk"; fi
    # The extension finds its helper where the package installs it.
    sql "CREATE EXTENSION pgseal"
    sql "ALTER SYSTEM SET pgseal.provider = 'file:/etc/pgseal/main.key'"
    sql "SELECT pg_reload_conf()" >/dev/null
    sleep 1
    sql "SELECT pgseal.create_domain('default')" >/dev/null
    sql "CREATE TABLE s (id sealed_int8 PRIMARY KEY); INSERT INTO s VALUES (42)"
    [ "$(sql "SELECT id FROM s")" = 42 ] || die "$cluster: sealed columns"
    [ "$(sql "SELECT sealed_blocks > 0 FROM pgseal.stat_io WHERE class = 'relation'")" = t ] || die "$cluster: counters"
    as_postgres pgseal status --prometheus --files "$data" >"/metrics-${cluster#*/}.prom"
    grep -qE '^pgseal_up\{.*\} 1$' "/metrics-${cluster#*/}.prom" || die "$cluster: metrics"
    pg_ctlcluster "${cluster%/*}" "${cluster#*/}" restart || die "$cluster does not start again"
    [ "$(sql "SELECT count(*) FROM t")" = 1000 ] || die "$cluster has lost rows"
    pg_ctlcluster "${cluster%/*}" "${cluster#*/}" stop
    as_postgres pgseal verify "$data" >/verify.log || { cat /verify.log; die "$cluster: verify"; }
    # Without its environment file, the cluster does not start.
    mv "/etc/postgresql/$cluster/environment" /environment.kept
    touch "/etc/postgresql/$cluster/environment"
    if pg_ctlcluster "${cluster%/*}" "${cluster#*/}" start >/refused.log 2>&1; then die "$cluster starts without the library"; fi
    mv /environment.kept "/etc/postgresql/$cluster/environment"
}

step "manual pages of the subcommands"
for page in pgseal pgseal-verify pgseal-key-rotate pgseal-tls-init; do
    dpkg -L pgseal | grep -q "/man1/$page\.1" || die "the package has no page $page(1)"
done
if dpkg -L pgseal | grep -q /man1/pgseal-lab; then die "the package has the page of pgseal-lab"; fi

step "licences of what is linked"
pgseal --licenses | grep -q AWS-LC || die "pgseal --licenses does not name AWS-LC"

step "pg_createcluster under pgseal run"
PGSEAL_PROVIDER=file:/etc/pgseal/main.key pgseal run -- \
    pg_createcluster "$major" main -o shared_preload_libraries=pgseal_guard -- -k >/create.log 2>&1 ||
    { cat /create.log; die "pg_createcluster"; }
pgseal env -D "/var/lib/postgresql/$major/main" --format debian
cp "/etc/postgresql/$major/main/environment" /environment.once
pgseal env -D "/var/lib/postgresql/$major/main" --format debian
cmp "/etc/postgresql/$major/main/environment" /environment.once || die "a second pgseal env changed the file"
use "$major/main"

step "pgseal initdb, then pg_createcluster -d"
install -d -o postgres -g postgres -m 700 /srv/sealed
as_postgres pgseal initdb -k -K file:/etc/pgseal/main.key -D /srv/sealed >/initdb.log || { cat /initdb.log; die "pgseal initdb"; }
pg_createcluster "$major" second -d /srv/sealed >/create.log 2>&1 || { cat /create.log; die "pg_createcluster -d"; }
pgseal env -D /srv/sealed --format debian
use "$major/second"

step "pg_dropcluster"
pg_dropcluster "$major" second --stop
[ ! -e /srv/sealed/PG_VERSION ] || die "pg_dropcluster left the data directory"

step "promtool"
apt-get -qq -y -o Dpkg::Use-Pty=0 install --no-install-recommends prometheus >/promtool.log 2>&1 ||
    { tail -n 20 /promtool.log; die "apt install prometheus"; }
promtool check metrics <"/metrics-main.prom" || die "promtool finds fault with the metrics"

# The next release, for the upgrade: the same files under a higher version.
step "an upgrade of the packages under a running server"
mkdir /newer
for deb in /debs/pgseal_*.deb /debs/postgresql-*-pgseal_*.deb; do
    rm -rf /unpacked
    dpkg-deb -R "$deb" /unpacked
    sed -Ei 's/^(Version: .*)$/\1+next/; s/(pgseal \(= [^)]*)\)/\1+next)/' /unpacked/DEBIAN/control
    dpkg-deb -Znone -b /unpacked "/newer/$(basename "$deb")" >/dev/null
done
cluster=$major/main
data=/var/lib/postgresql/$cluster
pg_ctlcluster "$major" main start
postmaster=$(head -n 1 "$data/postmaster.pid")
# A session from before, which asks again and again.
mkfifo -m 666 /ask
as_postgres psql -X -A -t -q -v ON_ERROR_STOP=1 --cluster "$cluster" -d postgres </ask >/answers 2>&1 &
session=$!
exec 7>/ask
echo "SELECT 'before', count(*) FROM t;" >&7
apt-get -qq -y -o Dpkg::Use-Pty=0 install --no-install-recommends /newer/*.deb >/upgrade.log 2>&1 ||
    { tail -n 30 /upgrade.log; die "the upgrade"; }
dpkg-query -W -f '${Version}\n' pgseal | grep -q '+next$' || die "pgseal is not the newer one"
grep -qF "$data (process $postmaster)" /upgrade.log || { cat /upgrade.log; die "the upgrade names no server"; }
grep -q '/libpgseal\.so.* (deleted)$' "/proc/$postmaster/maps" || die "the server's library was not replaced"
# The old session, new ones, new files, columns, a crash of a backend, the newer program: all on
# the library from before.
echo "INSERT INTO t SELECT 1, 'old session' FROM generate_series(1, 10); SELECT 'after', count(*) FROM t;" >&7
echo "\\q" >&7
exec 7>&-
wait "$session" || { cat /answers; die "the session from before the upgrade"; }
[ "$(cat /answers)" = $'before|1000\nafter|1010' ] || { cat /answers; die "rows in the session from before"; }
sql "CREATE TABLE u AS SELECT g, repeat('canary-upgrade-Wd5r', 10) AS v FROM generate_series(1, 5000) AS g"
sql "CHECKPOINT"
[ "$(sql "SELECT id FROM s")" = 42 ] || die "sealed columns after the upgrade"
if grep -rqaF canary-upgrade "$data"; then die "plain text on disk after the upgrade"; fi
kill -9 "$(sql "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'")"
for _ in $(seq 300); do
    [ "$(sql "SELECT count(*) FROM u" 2>/dev/null)" = 5000 ] && break
    sleep 0.2
done
[ "$(sql "SELECT count(*) FROM u")" = 5000 ] || die "recovery with the library from before"
[ "$(head -n 1 "$data/postmaster.pid")" = "$postmaster" ] || die "the postmaster did not survive"
as_postgres pgseal status --brief "$data" >/status.log || { cat /status.log; die "status"; }
as_postgres pgseal key renew "$data" >/renew.log 2>&1 || { cat /renew.log; die "key renew by the newer program"; }
sql "CREATE TABLE after_renewal AS SELECT 1"
as_postgres pgseal verify --quiet "$data" || die "verify of the running server"
pg_ctlcluster "$major" main restart || { cat /var/log/postgresql/*.log; die "restart with the newer library"; }
if grep -q '(deleted)$' <(grep libpgseal "/proc/$(head -n 1 "$data/postmaster.pid")/maps"); then
    die "the restarted server has the older library"
fi
[ "$(sql "SELECT count(*) FROM u, after_renewal")" = 5000 ] || die "rows after the restart"
sql "DROP TABLE u"

step "apt remove under a running server"
postmaster=$(head -n 1 "$data/postmaster.pid")
sql "CREATE DATABASE without_columns"
apt-get -qq -y -o Dpkg::Use-Pty=0 remove pgseal >/remove.log 2>&1 || { tail /remove.log; die "remove"; }
grep -qF "$data (process $postmaster)" /remove.log && grep -q 'cannot be started$' /remove.log ||
    { cat /remove.log; die "the removal does not warn"; }
[ ! -e /usr/lib/pgseal/libpgseal.so ] || die "the library is still there"
# What the warning says: it goes on running, writes nothing plain, and does not start again. In a
# database with sealed columns there are no new sessions.
if sql "SELECT 1" >/session.log 2>&1; then die "a session that needs the module of sealed columns"; fi
grep -q 'could not load library "pgseal"' /session.log || { cat /session.log; die "not the refusal that is documented"; }
database=without_columns
sql "CREATE TABLE w AS SELECT g, repeat('canary-remove-Zt8n', 10) AS v FROM generate_series(1, 5000) AS g"
sql "CHECKPOINT"
[ "$(sql "SELECT count(*) FROM w")" = 5000 ] || die "the server does not go on"
if grep -rqaF canary-remove "$data"; then die "plain text on disk after the removal"; fi
pg_ctlcluster "$major" main stop
if pg_ctlcluster "$major" main start >/refused.log 2>&1; then die "$cluster starts without the packages"; fi
apt-get -qq -y -o Dpkg::Use-Pty=0 install --no-install-recommends /newer/*.deb >/again.log 2>&1 ||
    { tail -n 30 /again.log; die "the packages again"; }
pg_ctlcluster "$major" main start || { cat /var/log/postgresql/*.log; die "$cluster does not start with the packages again"; }
[ "$(sql "SELECT count(*) FROM w")" = 5000 ] || die "rows after the packages came back"
database=postgres
[ "$(sql "SELECT id FROM s")" = 42 ] || die "sealed columns after the packages came back"
pg_ctlcluster "$major" main stop
as_postgres pgseal verify "$data" >/verify.log || { cat /verify.log; die "verify after the packages came back"; }
# verify has remembered it in the directory that the package made.
as_postgres pgseal status --brief --json "$data" | grep -q '"verified": {' || die "the check is not remembered"

step "apt purge"
apt-get -qq -y -o Dpkg::Use-Pty=0 purge pgseal >/purge.log 2>&1 || { tail /purge.log; die "purge"; }
if grep -q WARNING /purge.log; then cat /purge.log; die "a warning about servers, and none runs"; fi
[ ! -e /usr/bin/pgseal ] && [ ! -e /usr/lib/pgseal ] || die "the package left files"
[ -e "$data/pgseal/keyring" ] || die "a purge took the cluster's keyring"
[ -e /etc/pgseal/main.key ] || die "a purge took the key"
[ -n "$(ls /var/lib/pgseal)" ] || die "a purge took what pgseal remembers"
step "all passed"
