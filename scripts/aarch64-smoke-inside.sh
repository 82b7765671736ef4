#!/usr/bin/env bash
# aarch64-smoke-inside.sh MAJOR
#
# aarch64.sh runs this in the root for arm64, as root, in the project's directory: a sealed cluster
# with what was built for arm64.
set -euo pipefail

. "$(dirname "$0")/lib/arm64-cluster.sh" "$1"

remove() { :; }

[ "$(uname -m)" = aarch64 ] || die "programs here are of $(uname -m)"
# As "make install" places them, where the user postgres can read them.
mkdir -p "$work/bin" "$work/lib/pgseal/guard/$1"
cp target/release/pgseal "$work/bin/"
cp target/release/libpgseal.so "$work/lib/pgseal/"
cp "target/guard/$1/pgseal_guard.so" "$work/lib/pgseal/guard/$1/"
path=$work/bin:$path
as_postgres pgseal --version

make_cluster
kill_and_recover
stop_and_verify
step passed
