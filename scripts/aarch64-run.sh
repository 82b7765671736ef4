#!/usr/bin/env bash
# aarch64-run.sh COMMAND [ARGUMENT...]: runs a command for arm64 in the root of scripts/aarch64.sh,
# as root and in the current directory, which is the project's or below it. cargo runs tests by it.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib/aarch64.sh"
[ $# -gt 0 ] || die "which command?"
in_aarch64 "$@"
