#!/usr/bin/env bash
# fuzz.sh [TARGET...]: runs each fuzz target (default: all) for FUZZ_SECONDS (default 60), from its
# seeds in tests/fuzz/seeds and the corpus of earlier runs in tests/fuzz/corpus. Needs cargo-fuzz
# and the toolchain FUZZ_TOOLCHAIN (default nightly). A finding is a crash, a failed assertion, an
# input that takes more than 10 s, an allocation of more than 16 MiB (no input of 64 KiB needs
# that), or more than 1 GiB in all.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$PGSEAL_ROOT"

toolchain=${FUZZ_TOOLCHAIN:-nightly}
seconds=${FUZZ_SECONDS:-60}
command -v cargo-fuzz >/dev/null || die "cargo-fuzz is missing; 'cargo install --locked cargo-fuzz'"
cargo "+$toolchain" --version >/dev/null 2>&1 ||
    die "the toolchain $toolchain is missing; 'rustup toolchain install $toolchain'"
[ $# -gt 0 ] || mapfile -t targets < <(cargo "+$toolchain" fuzz list --fuzz-dir tests/fuzz)
[ $# -eq 0 ] || targets=("$@")
[ ${#targets[@]} -gt 0 ] || die "no fuzz targets in tests/fuzz/"
for target in "${targets[@]}"; do
    say "fuzz $target, $seconds s"
    log=$(mktemp)
    corpus=("tests/fuzz/corpus/$target")
    mkdir -p "${corpus[0]}"
    [ ! -d "tests/fuzz/seeds/$target" ] || corpus+=("tests/fuzz/seeds/$target")
    cargo "+$toolchain" fuzz run --fuzz-dir tests/fuzz "$target" "${corpus[@]}" -- -max_total_time="$seconds" -max_len=65536 \
        -timeout=10 -malloc_limit_mb=16 -rss_limit_mb=1024 >"$log" 2>&1 || {
        tail -n 40 "$log"
        rm -f "$log"
        die "$target found something; the input is in tests/fuzz/artifacts/$target"
    }
    tail -n 1 "$log"
    rm -f "$log"
done
say "fuzz: ${#targets[@]} targets, nothing found"
