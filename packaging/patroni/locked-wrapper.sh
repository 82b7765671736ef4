#!/bin/bash
# Patroni's postgres and pg_ctl for a data directory with a locked configuration (docs/patroni.md).
#
# Before each start and reload it accepts what Patroni itself writes: signal files, and the
# configuration files that Patroni makes in the data directory. Anything else that differs from the
# record, postgresql.auto.conf above all, is not accepted, and the server refuses it.
#
# Install it under the names postgres and pg_ctl in a directory of its own. Beside it: links to the
# other programs of PostgreSQL, and the link "real" to the directory of all of them. Name the
# directory in bin_dir.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=${0##*/}
accepted='standby.signal recovery.signal postgresql.conf postgresql.base.conf pg_hba.conf pg_ident.conf'

data=
case "$program ${1:-}" in
"pg_ctl reload" | "postgres -D" | "postgres --single")
    previous=
    for argument in "$@"; do
        if [ "$previous" = -D ]; then data=$argument; fi
        previous=$argument
    done
    ;;
esac

# Writes the name of each file that differs, and fails if one of them is none of Patroni's.
differs() {
    local line file
    while IFS= read -r line; do
        case $line in
        'changed: '* | 'added: '* | 'removed: '*)
            file=${line#*: }
            case " $accepted " in
            *" $file "*) echo "$file" ;;
            *) return 1 ;;
            esac
            ;;
        esac
    done <<<"$1"
}

if [ -n "$data" ] && [ -e "$data/pgseal/config" ]; then
    # The key is that of PGSEAL_PROVIDER in Patroni's environment.
    status=$(env -u LD_PRELOAD pgseal config status "$data") || true
    if files=$(differs "$status") && [ -n "$files" ]; then
        env -u LD_PRELOAD pgseal config accept --yes "$data" >/dev/null
    fi
fi
exec "$here/real/$program" "$@"
