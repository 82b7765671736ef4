#!/bin/bash
# Barman's pg_basebackup, pg_receivewal and pg_verifybackup under pgseal, so that what they write is
# sealed (docs/backup.md).
#
# Install it under each of these names in a directory of its own, with a copy of the server's
# keyring in pgseal/keyring beside it, and name the directory in path_prefix of the server's section
# in Barman's configuration.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=${0##*/}

# The program itself is the next one of that name in PATH, in which Barman has put this directory
# first.
path=
IFS=: read -r -a dirs <<<"$PATH"
for dir in "${dirs[@]}"; do
    if ! [ "$dir" -ef "$here" ]; then path=${path:+$path:}$dir; fi
done
export PATH=$path

case $program in
pg_basebackup)
    for argument in "$@"; do
        case $argument in --format=t*)
            echo "$0: Barman cannot read the sealed tar files of backup_compression; remove that setting" >&2
            exit 1
            ;;
        esac
    done
    export PGSEAL_KEYRING_FROM=$here/pgseal/keyring
    ;;
pg_receivewal) export PGSEAL_DATA=$here ;;
esac
exec pgseal run -- "$program" "$@"
