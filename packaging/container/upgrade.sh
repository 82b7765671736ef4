#!/bin/bash
# pgseal-upgrade OLD [OPTION OF pg_upgrade...]
#
# Upgrades the sealed data directory OLD, of an older major version, into PGDATA, with pg_upgrade.
# The image must have the older server too: make image MAJOR=17 UPGRADE_FROM=15. OLD is left as it
# is, if the options do not ask for another mode. POSTGRES_USER is the superuser that the old
# cluster was made with (postgres). If it fails, the entrypoint refuses PGDATA.
set -euo pipefail

die() {
    printf 'pgseal-upgrade: error: %s\n' "$*" >&2
    exit 1
}

[ $# -ge 1 ] || die "which data directory?"
old=$1
shift
new_bin=/usr/lib/postgresql/$PG_MAJOR/bin
if [ "$(id -u)" = 0 ]; then
    mkdir -p "$PGDATA"
    chown postgres: "$PGDATA"
    exec setpriv --reuid=postgres --regid=postgres --init-groups -- "$0" "$old" "$@"
fi
[ -s "$old/PG_VERSION" ] || die "$old is no data directory"
from=$(<"$old/PG_VERSION")
old_bin=/usr/lib/postgresql/$from/bin
[ -x "$old_bin/postgres" ] || die "$old is of PostgreSQL $from, which this image does not have: make image MAJOR=$PG_MAJOR UPGRADE_FROM=$from"
[ "$from" -lt "$PG_MAJOR" ] || die "$old is of PostgreSQL $from, which is not older than $PG_MAJOR"

control() { "$old_bin/pg_controldata" "$old" | sed -nE "s/^$1: +//p"; }
checksums=--no-data-checksums
[ "$(control 'Data page checksum version')" = 0 ] || checksums=--data-checksums
user=${POSTGRES_USER:-postgres}

pgseal initdb "$checksums" --keyring-of "$old" --bindir "$new_bin" "$PGDATA" -- \
    --username="$user" --wal-segsize="$(($(control 'Bytes per WAL segment') / 1024 / 1024))"
# What is there until pg_upgrade has ended must not be taken for the upgraded cluster.
: >"$PGDATA/upgrade-unfinished"
# pg_upgrade writes a script, which removes the old directory, where it runs.
cd "$(mktemp -d)"
pgseal run -- "$new_bin/pg_upgrade" -b "$old_bin" -B "$new_bin" -d "$old" -D "$PGDATA" -U "$user" "$@" || {
    # docs/upgrade.md, "Minor releases".
    if grep -qaF pg_attver "$old_bin/postgres" && ! grep -qaF pg_attver "$new_bin/postgres"; then
        printf '%s\n' "$("$new_bin/postgres" --version) is older than what this minor release of $from needs: it does not know the" \
            "option pg_attver of its columns. Wait for an image with the next minor release of $PG_MAJOR." >&2
    fi
    die "pg_upgrade failed; the new volume holds no upgraded cluster. Empty it before you run this again"
}
# Who may connect, and the lines for other hosts that the entrypoint wrote.
cp "$old/pg_hba.conf" "$old/pg_ident.conf" "$PGDATA/"
printf "\n# by pgseal-upgrade\nlisten_addresses = '*'\n" >>"$PGDATA/postgresql.conf"
rm "$PGDATA/upgrade-unfinished"
printf '%s\n' "$PGDATA is of PostgreSQL $PG_MAJOR now. pg_hba.conf and pg_ident.conf are the old ones; your changes of" \
    "postgresql.conf and postgresql.auto.conf have to be carried over by hand."
