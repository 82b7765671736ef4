#!/usr/bin/env bash
# install-file.sh MODE SOURCE TARGET: installs one file by a rename, so that it never writes to a
# library that running servers have mapped.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

[ $# = 3 ] || die "usage: install-file.sh MODE SOURCE TARGET"
install_file "$@"
