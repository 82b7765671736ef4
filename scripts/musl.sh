#!/usr/bin/env bash
# musl.sh build|hooks|unit|cluster|core...
#
# Builds pgseal for musl (Alpine) on this machine, and tests it with PostgreSQL as it was built on
# Alpine, in a root that is made in the cache (as root). MAJOR (15) chooses PostgreSQL's major
# version, whose headers must be here.
#   build    library, program, guard module
#   hooks    what the server's programs and modules import
#   unit     tests within the crates; not the programs that call each hook, which use what only
#            glibc has
#   cluster  a sealed cluster: load, kill -9, recovery, no row on the disk, verify; no start without
#            the library
#   core     PostgreSQL's core regression tests, plain and sealed, compared
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib/musl.sh"
cd "$PGSEAL_ROOT"

MAJOR=${MAJOR:-15}
CRATES=(pgseal-core pgseal-crypto pgseal-keys pgseal-pgdata pgseal-random pgseal-preload)
built=$PGSEAL_ROOT/target/$MUSL_TARGET
config=$(pg_config_of "$MAJOR") || die "no headers of PostgreSQL $MAJOR; run scripts/postgres-versions.sh fetch $MAJOR"

export PGSEAL_CROSS=$MUSL_TARGET PGSEAL_CROSS_CC=musl-gcc PGSEAL_CROSS_ROOT=$MUSL_ROOT PG_CONFIG=$config
# Without the directories of this machine's C library.
export PGSEAL_CROSS_MAKE=LDFLAGS=
export CC_x86_64_unknown_linux_musl=musl-gcc CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_LINKER=musl-gcc
# A program that loads a library, and a library that is loaded, cannot be static. For libgcc_s,
# which would need this machine's C library, stands the unwinder that Rust has for musl.
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_RUSTFLAGS="-C target-feature=-crt-static -L native=$MUSL_DIR/unwind"
# The programs that tests compile run with the same C library.
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_RUNNER="env PATH=$MUSL_DIR/bin:$PATH"

prepare() {
    local program
    [ "$(id -u)" = 0 ] || die "a root of its own can only be made as root"
    for program in musl-gcc mvn busybox unshare python3; do
        command -v "$program" >/dev/null || die "$program is missing; run scripts/setup.sh musl"
    done
    mkdir -p build/results
    make_musl_root "$MAJOR"
    mkdir -p "$MUSL_DIR/unwind" "$MUSL_DIR/bin"
    say "INPUT($(rustc --print sysroot)/lib/rustlib/$MUSL_TARGET/lib/self-contained/libunwind.a)" >"$MUSL_DIR/unwind/libgcc_s.so"
    # With the kernel's headers, which are no part of musl.
    mkdir -p "$MUSL_DIR/include"
    ln -sfn /usr/include/linux "$MUSL_DIR/include/linux"
    ln -sfn /usr/include/asm-generic "$MUSL_DIR/include/asm-generic"
    ln -sfn "/usr/include/$(uname -m)-linux-gnu/asm" "$MUSL_DIR/include/asm"
    rm -f "$MUSL_DIR/bin/cc"
    printf '#!/bin/sh\nexec musl-gcc -idirafter %s/include "$@"\n' "$MUSL_DIR" >"$MUSL_DIR/bin/cc"
    chmod 755 "$MUSL_DIR/bin/cc"
}

build() {
    "${CARGO:-cargo}" build --quiet --release --locked --target "$MUSL_TARGET" -p pgseal-preload
    "${CARGO:-cargo}" build --quiet --release --locked --target "$MUSL_TARGET" -p pgseal-cli
    scripts/guard.sh build
    ! objdump -p "$built/release/libpgseal.so" "$built/release/pgseal" "$built/guard/$MAJOR/pgseal_guard.so" |
        grep NEEDED | grep -v 'libc\.so$' || die "they need more than musl"
}

hooks() {
    local check=$built/release/examples/symbol_check kind path found=no
    "${CARGO:-cargo}" build --quiet --release --locked --target "$MUSL_TARGET" -p pgseal-preload --example symbol_check
    for kind in program module; do
        path=$MUSL_ROOT/usr/local/bin
        [ "$kind" = program ] || path=$MUSL_ROOT/usr/local/lib
        # shellcheck disable=SC2046 # paths without blanks
        "$check" "$kind" $(find "$path" -type f \( -perm /111 -o -name '*.so*' \)) || found=yes
    done
    [ "$found" = no ] || die "PostgreSQL for musl imports what the table does not know"
}

# In the profile of "build", in which AWS-LC is compiled already.
unit() { scripts/cargo-test.sh --release "${CRATES[@]/#/-p=}" --lib; }

work=
stop() {
    local status=$?
    trap - EXIT
    if [ -n "$work" ]; then
        stop_servers_below "$work"
        [ "$status" = 0 ] || tail -n 20 "$work"/*.log >&2 || true
        rm -rf "$work"
    fi
    exit "$status"
}

# begin: a directory for a cluster, which both worlds see, with what was built.
begin() {
    work=$(mktemp -d "${TMPDIR:-/tmp}/musl.XXXXXX")
    trap stop EXIT
    trap 'exit 130' INT TERM
    mkdir -p "$work/lib/pgseal/guard/$MAJOR" "$work/bin"
    cp "$built/release/pgseal" "$work/bin/"
    cp "$built/release/libpgseal.so" "$work/lib/pgseal/"
    cp "$built/guard/$MAJOR/pgseal_guard.so" "$work/lib/pgseal/guard/$MAJOR/"
    chown -R postgres: "$work"
    chmod 755 "$work"
}
end() {
    stop_servers_below "$work"
    rm -rf "$work"
    work=
}
inside() { in_musl "$work" "$@"; }
pgseal() { inside bin/pgseal "$@"; }
# server sealed|plain COMMAND [SETTING...]
server() {
    local how=() command=$2 mode=$1
    shift 2
    [ "$mode" = plain ] || how=(bin/pgseal run --)
    inside "${how[@]}" pg_ctl -s -w -D "$work/$mode" -l "$work/$mode.log" \
        -o "-k $work -c listen_addresses='' $*" "$command" </dev/null
}
# The client is this machine's: the packages for Alpine have none.
sql() { "${config%/*}/psql" -h "$work" -U postgres -d postgres -X -A -t -q -v ON_ERROR_STOP=1 -c "$1"; }
# make_cluster sealed|plain
make_cluster() {
    if [ "$1" = plain ]; then
        inside initdb -k -A trust --no-sync -D "$work/plain"
    else
        [ -e "$work/main.key" ] || pgseal key new -o main.key
        pgseal initdb -k -K "file:$work/main.key" --bindir /usr/local/bin -D "$work/sealed" -- -A trust --no-sync
    fi >"$work/initdb.log" 2>&1
}

cluster() {
    local canary=canary-musl-Qk7z postmaster
    begin
    make_cluster sealed
    server sealed start
    sql "CREATE TABLE t AS SELECT g, '$canary' || g AS v FROM generate_series(1, 100000) AS g"
    sql "CREATE INDEX ON t (v); CREATE TABLE big AS SELECT repeat('$canary', 5000) AS v FROM generate_series(1, 20)"
    sql "CREATE EXTENSION pgcrypto; CREATE EXTENSION hstore; CREATE EXTENSION pg_stat_statements"
    sql "CHECKPOINT"
    sql "INSERT INTO t SELECT g, '$canary' || g FROM generate_series(1, 50000) AS g"
    # By streams: to a sealed place, and to one outside.
    sql "COPY t TO '$work/sealed/rows'; COPY t TO '$work/rows'; CREATE TABLE u (LIKE t); COPY u FROM '$work/sealed/rows'"
    [ "$(sql "SELECT count(*) FROM u JOIN t USING (g, v)")" -ge 150000 ] || die "rows by COPY"
    grep -qaF "$canary" "$work/rows" || die "the search finds nothing at all"
    postmaster=$(head -n 1 "$work/sealed/postmaster.pid")
    # shellcheck disable=SC2046 # process ids
    kill -9 "$postmaster" $(pgrep -P "$postmaster")
    while [ -d "/proc/$postmaster" ]; do sleep 0.2; done
    ! grep -rlaF "$canary" "$work/sealed" || die "rows can be read on the disk"
    server sealed start
    [ "$(sql "SELECT count(*) FROM t")" = 150000 ] || die "rows after recovery"
    pgseal verify --quiet "$work/sealed"
    server sealed stop
    pgseal verify --quiet "$work/sealed"
    pgseal status --brief "$work/sealed" >/dev/null
    ! inside pg_ctl -s -w -D "$work/sealed" -l "$work/refused.log" start >/dev/null 2>&1 || die "it starts without the library"
    grep -q pgseal "$work/refused.log" || die "the server does not say why it does not start"
    end
    say "musl: a sealed cluster of PostgreSQL $MAJOR: recovery, nothing to be read on the disk, every block sound"
}

core() {
    local source mode status regress
    tests/upstream/fetch.sh "$MAJOR"
    source=build/upstream/$(cut -d ' ' -f 1 "build/upstream/current-$MAJOR")/src/src/test/regress
    regress=$(dirname "$("$config" --pgxs)")/../test/regress/pg_regress
    for mode in plain sealed; do
        begin
        mkdir -p "$work/out/testtablespace" "$work/out/sql" "$work/out/expected"
        cp -r "$source" "$work/in"
        cp "$MUSL_ROOT"/usr/local/lib/postgresql/{refint,autoinc}.so "$work/lib/"
        musl-gcc -shared -fPIC -O1 -I"$("$config" --includedir-server)" -o "$work/lib/regress.so" "$source/regress.c"
        chown -R postgres: "$work"
        make_cluster $mode
        server $mode start "-c max_prepared_transactions=2"
        status=0
        (cd "$work/out" && setpriv --reuid=postgres --regid=postgres --init-groups "$regress" --inputdir="$work/in" \
            --outputdir="$work/out" --bindir="${config%/*}" --dlpath="$work/lib" --host="$work" --user=postgres \
            --max-concurrent-tests=20 --schedule="$work/in/parallel_schedule") >"build/results/musl-$mode.log" 2>&1 || status=$?
        say "musl, $mode: $(grep -E '^ [0-9]+ of|^ All' "build/results/musl-$mode.log")"
        [ "$status" -le 1 ] || die "pg_regress ended with $status; see build/results/musl-$mode.log"
        cp "$work/out/regression.diffs" "build/results/musl-$mode.diffs" 2>/dev/null || true
        ! grep -E 'PANIC|was terminated by signal' "$work/$mode.log" || die "the server crashed"
        server $mode stop
        [ $mode = plain ] || pgseal verify --quiet "$work/sealed"
        end
    done
    # The same tests fail in both: those for which the release, or the C library, gives other
    # answers than expected.
    [ "$(results plain | wc -l)" -gt 200 ] || die "only $(results plain | wc -l) tests ran"
    diff <(results plain) <(results sealed) || die "plain and sealed differ"
    say "musl: $(results sealed | grep -c ' ok$') of $(results sealed | wc -l) core tests as expected, and the others fail plain and sealed"
}

# results MODE: each test and whether it passed.
results() { sed -nE 's/^(test)? +(\S+) +\.\.\. (ok|FAILED).*/\2 \3/p' "build/results/musl-$1.log" | sort; }

run_actions musl "build hooks unit cluster core" "$@"
