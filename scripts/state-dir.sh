#!/usr/bin/env bash
# state-dir.sh: for 'make install': makes /var/lib/pgseal, where pgseal remembers its checks, for
# the user of the servers. A package makes it when it is installed, so with DESTDIR this does
# nothing.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

dir=/var/lib/pgseal
[ -z "${DESTDIR:-}" ] || exit 0
[ ! -e "$dir" ] || exit 0
if [ "$(id -u)" = 0 ] && id postgres >/dev/null 2>&1; then
    install -d -o postgres -g postgres -m 0755 "$dir"
    say "made $dir, for the user postgres"
else
    say "not made: $dir, where pgseal would remember its checks (docs/monitoring.md)"
fi
