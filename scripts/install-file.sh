#!/usr/bin/env bash
# install-file.sh MODE SOURCE TARGET: installs one file by a rename, so that a library which running servers
# have mapped is never written to.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

[ $# = 3 ] || die "usage: install-file.sh MODE SOURCE TARGET"
install_file "$@"
