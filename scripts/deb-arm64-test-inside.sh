#!/usr/bin/env bash
# deb-arm64-test-inside.sh DIR MAJOR
#
# aarch64.sh runs this in the root for arm64, as root. Installs the packages of DIR with dpkg, makes
# a sealed cluster with what they installed, kills it, and removes them.
set -euo pipefail

debs=$1
. "$(dirname "$0")/lib/arm64-cluster.sh" "$2"

packages() { dpkg-query -W -f '${Package} ${db:Status-Status}\n' 'pgseal*' 'postgresql-*-pgseal' 2>/dev/null | sed -n 's/ installed$//p'; }
remove() {
    # shellcheck disable=SC2046 # names of packages
    [ -z "$(packages)" ] || dpkg --purge $(packages) >"$work/purge.log" 2>&1 || cat "$work/purge.log" >&2
}

step "dpkg -i"
remove
find "$debs" -name '*.deb' ! -name '*-dbgsym_*' -exec dpkg -i {} + >"$work/install.log" 2>&1 || die "dpkg -i"
[ "$(packages | wc -l)" = 3 ] || die "installed: $(packages)"
[ "$(dpkg-query -W -f '${Architecture}' pgseal)" = arm64 ] || die "a package of another architecture"
[ -z "$(dpkg --verify pgseal)" ] || die "the files are not those of the package: $(dpkg --verify pgseal)"
pgseal --version
[ "$(pgseal provider list)" = $'aws-kms:\nkmip:\npkcs11:\ntpm2:\nvault:' ] || die "pgseal does not find its plugins"
[ "$(stat -c %U /var/lib/pgseal)" = postgres ] || die "/var/lib/pgseal is not the servers'"
pgseal --licenses | grep -c AWS-LC >/dev/null || die "pgseal --licenses does not name AWS-LC"
pgseal lab --help >/dev/null || die "pgseal does not find pgseal-lab"

make_cluster
sql "CREATE EXTENSION pgseal"
sql "ALTER SYSTEM SET pgseal.provider = 'file:$work/main.key'"
sql "SELECT pg_reload_conf()" >/dev/null
for _ in $(seq 300); do [ -z "$(sql "SHOW pgseal.provider")" ] || break; sleep 0.2; done
sql "SELECT pgseal.create_domain('default')" >/dev/null
sql "CREATE TABLE s (id sealed_int8 PRIMARY KEY); INSERT INTO s VALUES (42)"
[ "$(sql "SELECT id FROM s")" = 42 ] || die "sealed columns"
kill_and_recover
[ "$(sql "SELECT id FROM s")" = 42 ] || die "sealed columns after recovery"
stop_and_verify

step "dpkg --purge"
remove
[ -z "$(packages)" ] || die "still there: $(packages)"
for file in /usr/bin/pgseal /usr/lib/pgseal "/usr/lib/postgresql/$2/lib/pgseal_guard.so" /usr/share/doc/pgseal; do
    [ ! -e "$file" ] || die "the packages leave $file"
done
step passed
