#!/usr/bin/env bash
# fuzz.sh [TARGET...]: runs each fuzz target (default: all) for FUZZ_SECONDS (default 60), from its seeds in fuzz/seeds
# and from what earlier runs kept in fuzz/corpus. Needs cargo-fuzz and the toolchain FUZZ_TOOLCHAIN (default nightly).
# A finding is a crash, a failed assertion, an input of more than 10 s, one allocation of more than 16 MiB, which no
# input of 64 KiB needs, or 1 GiB in all.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$PGSEAL_ROOT"

toolchain=${FUZZ_TOOLCHAIN:-nightly}
seconds=${FUZZ_SECONDS:-60}
command -v cargo-fuzz >/dev/null || die "cargo-fuzz is missing; 'cargo install --locked cargo-fuzz'"
cargo "+$toolchain" --version >/dev/null 2>&1 ||
    die "the toolchain $toolchain is missing; 'rustup toolchain install $toolchain'"
[ $# -gt 0 ] || mapfile -t targets < <(cargo "+$toolchain" fuzz list)
[ $# -eq 0 ] || targets=("$@")
[ ${#targets[@]} -gt 0 ] || die "no fuzz targets in fuzz/"
for target in "${targets[@]}"; do
    say "fuzz $target, $seconds s"
    log=$(mktemp)
    corpus=("fuzz/corpus/$target")
    mkdir -p "${corpus[0]}"
    [ ! -d "fuzz/seeds/$target" ] || corpus+=("fuzz/seeds/$target")
    cargo "+$toolchain" fuzz run "$target" "${corpus[@]}" -- -max_total_time="$seconds" -max_len=65536 \
        -timeout=10 -malloc_limit_mb=16 -rss_limit_mb=1024 >"$log" 2>&1 || {
        tail -n 40 "$log"
        rm -f "$log"
        die "$target found something; the input is in fuzz/artifacts/$target"
    }
    tail -n 1 "$log"
    rm -f "$log"
done
say "fuzz: ${#targets[@]} targets, nothing found"
