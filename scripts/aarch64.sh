#!/usr/bin/env bash
# aarch64.sh smoke|build|unit|hooks|guard|columns|scenarios|core|deb|test-deb...
#
# Builds pgseal for aarch64 with a compiler of this machine (x86-64), and tests it under qemu-user
# with Debian's PostgreSQL for arm64, in a root that is made in the cache. What runs a server needs
# root and Linux 6.7 or later; "build", "hooks" and "deb" do not:
#   smoke      builds the library, pgseal and the guard module only; a sealed cluster that is
#              loaded, killed, recovered, searched for rows and verified
#   build      library, programs, plugins, library of columns; guard module and extension
#   unit       tests of the crates with their vectors, and the programs that call each hook; of
#              CRATES, if that names some. tests/aarch64-skip.tsv names what emulation cannot run,
#              and why
#   hooks      what PostgreSQL's programs for arm64 import
#   guard      the guard module against the real server
#   columns    the extension against the real server
#   scenarios  the scenarios of SCENARIOS (default: crash canary)
#   core       PostgreSQL's core regression tests, plain and sealed, compared
#   deb        Debian packages for arm64 in build/deb-arm64; does what "build" does, too
#   test-deb   what these need and contain, lintian; installs them in the root with dpkg, uses a
#              sealed cluster there, and removes them (scripts/deb-arm64-test-inside.sh)
# Emulation shows nothing of speed, and not what a processor with a weaker order of memory does:
# qemu on x86-64 keeps the order of x86-64. The pages are those of this machine.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib/apt.sh"
. "$(dirname "$0")/lib/root.sh"
. "$(dirname "$0")/lib/packages.sh"
. "$(dirname "$0")/lib/aarch64.sh"
cd "$PGSEAL_ROOT"

MAJOR=15
DEBS=build/deb-arm64
PLUGINS=(pgseal-provider-kmip pgseal-provider-pkcs11 pgseal-provider-tpm2 pgseal-provider-vault)
: "${CRATES:=pgseal-core pgseal-crypto pgseal-keys pgseal-pgdata pgseal-column pgseal-random pgseal-preload}"
: "${SCENARIOS:=crash canary}" "${CORE_LIMIT:=10000}"

export PGSEAL_CROSS=$AARCH64_TARGET PGSEAL_CROSS_CC="aarch64-linux-gnu-gcc --sysroot=$AARCH64_ROOT -ffile-prefix-map=$AARCH64_ROOT="
export PGSEAL_CROSS_SKIP=tests/aarch64-skip.tsv PGSEAL_CROSS_ROOT=$AARCH64_ROOT PGSEAL_CROSS_EMULATOR=$AARCH64_QEMU PG_CONFIG=$AARCH64_DIR/pg_config
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=$PGSEAL_ROOT/scripts/aarch64-run.sh

prepare() {
    for program in "$AARCH64_QEMU" aarch64-linux-gnu-gcc; do
        command -v "$program" >/dev/null || die "$program is missing; run scripts/setup.sh aarch64"
    done
    make_aarch64_root "$(host_suite)" "$MAJOR"
}

# For packages each program lists the crates in it, as with AUDITABLE=yes in the Makefile.
cross() { "${CARGO:-cargo}" ${AUDITABLE:+auditable} build --quiet --release --locked --target "$AARCH64_TARGET" "$@"; }

# What a sealed cluster needs, and nothing else.
build_server() {
    cross -p pgseal-preload
    cross -p pgseal-cli
    scripts/guard.sh build
}

smoke() {
    build_server
    inside scripts/aarch64-smoke-inside.sh "$MAJOR"
}

build() {
    cross -p pgseal-preload
    cross -p pgseal-cli "${PLUGINS[@]/#/-p=}"
    cross -p pgseal-column
    scripts/guard.sh build
    scripts/extension.sh build
}

unit() {
    local names
    read -ra names <<<"$CRATES"
    scripts/cargo-test.sh "${names[@]/#/-p=}"
}

scenarios() {
    local names
    read -ra names <<<"$SCENARIOS"
    scripts/cargo-test.sh -p pgseal-scenarios "${names[@]/#/--test=}"
}

# In the root, where nothing says that this is another architecture.
inside() {
    env -u PGSEAL_CROSS -u PG_CONFIG scripts/aarch64-run.sh "$@"
}

hooks() { scripts/hooks-audit.sh; }

guard() { inside scripts/guard.sh test; }

columns() { inside scripts/extension.sh test; }

# The source comes to this machine, because the root has nothing that unpacks source packages.
core() {
    local mode binaries
    # shellcheck disable=SC2016 # dpkg's own placeholder
    binaries=$(dpkg-query --admindir="$AARCH64_ROOT/var/lib/dpkg" -W -f '${Version}' "postgresql-$MAJOR")
    export PGSEAL_CACHE=$PGSEAL_ROOT/build/upstream-aarch64
    tests/upstream/fetch.sh --binaries "$binaries" "$MAJOR"
    for mode in plain sealed; do
        inside tests/upstream/run-core.sh --major "$MAJOR" --mode "$mode" --limit "$CORE_LIMIT"
    done
    inside tests/upstream/compare.sh --major "$MAJOR" core
}

deb() {
    AUDITABLE=yes build
    AUDITABLE=yes cross -p pgseal-lab
    AUDITABLE=yes cross -p pgseal-provider-aws-kms
    scripts/notices.sh write
    PGSEAL_LIBRARIES="$AARCH64_LIBRARIES/libc6 $AARCH64_LIBRARIES/libgcc-s1" scripts/deb.sh build "$DEBS"
}

test-deb() {
    [ -e "$(find "$DEBS" -name 'pgseal_*_arm64.deb' 2>/dev/null)" ] || die "no packages in $DEBS; run 'make deb ARCH=arm64' first"
    OBJCOPY=aarch64-linux-gnu-objcopy check_debs "$DEBS"
    inside scripts/deb-arm64-test-inside.sh "$DEBS" "$MAJOR"
}

run_actions aarch64 "smoke build unit hooks guard columns scenarios core deb test-deb" "$@"
