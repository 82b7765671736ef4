#!/usr/bin/env bash
# cargo-test.sh ARGUMENT...: runs 'cargo test ARGUMENT...' after 'make build'. Tests that start
# servers use the programs of 'make build', which 'make install' also installs: a test build of the
# library would have other features and be slow.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$PGSEAL_ROOT"

release=$PGSEAL_ROOT/target/release
for file in "$release/pgseal" "$release/libpgseal.so"; do
    [ -e "$file" ] || die "$file is missing; run 'make build' first"
done
config=$(pg_configs | tail -n 1)
[ -n "$config" ] || die "no PostgreSQL server here; run scripts/setup.sh test"
guard=$PGSEAL_ROOT/target/guard/$(pg_major "$config")/pgseal_guard.so
[ -e "$guard" ] || die "$guard is missing; run 'make build' first"

export PGSEAL_TEST_PROGRAM=$release/pgseal PGSEAL_LIBRARY=$release/libpgseal.so PGSEAL_BIN_DIR=$release
export PGSEAL_GUARD_MODULE=$guard
PGSEAL_TEST_BINDIR=$("$config" --bindir)
export PGSEAL_TEST_BINDIR
PGSEAL_KEY_STORES=$(key_stores_dir)
export PGSEAL_KEY_STORES
# The older major versions to upgrade from, in lines: "MAJOR BINDIR GUARD-MODULE".
PGSEAL_TEST_OLDER=$(for ((major = 15; major < $(pg_major "$config"); major++)); do
    older=$(pg_config_of "$major") || continue
    guard=$PGSEAL_ROOT/target/guard/$major/pgseal_guard.so
    if [ -e "$guard" ]; then say "$major ${older%/*} $guard"; fi
done)
export PGSEAL_TEST_OLDER
# Show all failures of a run, not only the first. PGSEAL_TEST_VERBOSE=yes: a line for each test.
quiet=--quiet
[ "${PGSEAL_TEST_VERBOSE:-}" != yes ] || quiet=
features=()
if [ -n "${FIPS:-}" ]; then
    # The tests of what a FIPS build refuses, each with its reason, are left out.
    features=(-p pgseal-crypto --features pgseal-crypto/fips)
    case " $* " in *" -- "*) ;; *) set -- "$@" -- ;; esac
    while IFS=$'\t' read -r test _; do set -- "$@" --skip "$test"; done < <(grep -v '^#' tests/fips-skip.tsv)
fi
exec "${CARGO:-cargo}" test ${quiet:+"$quiet"} --locked --no-fail-fast "${features[@]}" "$@"
