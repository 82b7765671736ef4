#!/usr/bin/env bash
# cargo-test.sh ARGUMENT...: runs 'cargo test ARGUMENT...' after 'make build'. Tests that start
# servers use the programs of 'make build', which 'make install' also installs: a test build of the
# library would have other features and be slow. With PGSEAL_CROSS, the tests of that architecture.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$PGSEAL_ROOT"

target=$PGSEAL_ROOT/$(target_dir)
release=$target/release
for file in "$release/pgseal" "$release/libpgseal.so"; do
    [ -e "$file" ] || die "$file is missing; run 'make build' first"
done
config=$(pg_configs | tail -n 1)
[ -n "$config" ] || die "no PostgreSQL server here; run scripts/setup.sh test"
guard=$target/guard/$(pg_major "$config")/pgseal_guard.so
[ -e "$guard" ] || die "$guard is missing; run 'make build' first"

export PGSEAL_TEST_PROGRAM=$release/pgseal PGSEAL_LIBRARY=$release/libpgseal.so PGSEAL_BIN_DIR=$release
export PGSEAL_GUARD_MODULE=$guard
PGSEAL_TEST_BINDIR=$("$config" --bindir)
# Tests of another architecture run within its root.
PGSEAL_TEST_BINDIR=${PGSEAL_TEST_BINDIR#"$PGSEAL_CROSS_ROOT"}
export PGSEAL_TEST_BINDIR
PGSEAL_KEY_STORES=$(key_stores_dir)
export PGSEAL_KEY_STORES
# The older major versions to upgrade from, in lines: "MAJOR BINDIR GUARD-MODULE".
PGSEAL_TEST_OLDER=$(for ((major = 15; major < $(pg_major "$config"); major++)); do
    older=$(pg_config_of "$major") || continue
    guard=$target/guard/$major/pgseal_guard.so
    if [ -e "$guard" ]; then say "$major ${older%/*} $guard"; fi
done)
export PGSEAL_TEST_OLDER
# Show all failures of a run, not only the first. PGSEAL_TEST_VERBOSE=yes: a line for each test.
quiet=--quiet
[ "${PGSEAL_TEST_VERBOSE:-}" != yes ] || quiet=
features=() skipped=()
if [ -n "${FIPS:-}" ]; then
    features=(-p pgseal-crypto --features pgseal-crypto/fips)
    skipped+=(tests/fips-skip.tsv)
fi
[ -z "$PGSEAL_CROSS_SKIP" ] || skipped+=("$PGSEAL_CROSS_SKIP")
if [ ${#skipped[@]} -gt 0 ]; then
    # Tests that cannot pass there, each with its reason, are left out.
    case " $* " in *" -- "*) ;; *) set -- "$@" -- ;; esac
    while IFS=$'\t' read -r test _; do set -- "$@" --skip "$test"; done < <(grep -hv '^#' "${skipped[@]}")
fi
exec "${CARGO:-cargo}" test ${PGSEAL_CROSS:+--target="$PGSEAL_CROSS"} ${quiet:+"$quiet"} --locked --no-fail-fast "${features[@]}" "$@"
