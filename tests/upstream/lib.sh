# shellcheck shell=bash disable=SC2034 # its variables are for the scripts that read it
# Shared by run-core.sh, run-isolation.sh, run-modules.sh and run-tap.sh: options, paths, the
# environment of a plain or a sealed run, a server for a suite, results.

. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"
HERE=$PGSEAL_ROOT/tests/upstream

# A fixed key: these clusters hold PostgreSQL's own test data and live for minutes.
TEST_KEY=00112233445566778899aabbccddeeff102132435465768798a9bacbdcedfe0f

# upstream_start SUITE [OPTION...]: reads the options, drops root, finds the source and the server,
# and creates the work directory. Sets MAJOR, MODE, JOBS, LIMIT_S, REST (further arguments), WORK,
# MODE_ENV and the variables that locate sets.
upstream_start() {
    SUITE=$1
    shift
    local all=("$@")
    MODE=plain JOBS=2 KEEP=no
    MAJOR=$(default_major)
    read_options "mode=MODE major=MAJOR jobs=JOBS limit=LIMIT_S keep:KEEP" "$@"
    case "$MODE" in plain | sealed) ;; *) die "--mode is plain or sealed, not '$MODE'" ;; esac

    if [ "$(id -u)" = 0 ]; then
        "$HERE/fetch.sh" "$MAJOR"
        local as_user=("$PGSEAL_ROOT/scripts/as-user.sh" --upstream "$MAJOR")
        [ "$KEEP" = no ] || as_user+=(--keep)
        exec "${as_user[@]}" -- "tests/upstream/$(basename "$0")" "${all[@]}"
    fi
    "$HERE/fetch.sh" "$MAJOR" >/dev/null
    locate
    mode_env
    WORK=$(mktemp -d "${TMPDIR:-/tmp}/up.XXXXXX")
    [ ${#WORK} -le 60 ] || die "$WORK is too long for the path of a Unix socket; set TMPDIR to something shorter"
    trap upstream_end EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
}

# results_in NAME: creates an empty build/results/NAME and sets RESULTS to its path.
results_in() {
    RESULTS=$PGSEAL_ROOT/build/results/$1
    rm -rf "$RESULTS"
    mkdir -p "$RESULTS"
    say "$SUITE, $MODE: PostgreSQL $VERSION ($WHICH binaries)"
}

upstream_end() {
    local status=$?
    trap - EXIT INT TERM HUP
    stop_servers_below "$WORK"
    if [ "$KEEP" = yes ]; then say "kept: $WORK"; else rm -rf "$WORK"; fi
    exit "$status"
}

# Reads the cache of fetch.sh and sets VERSION, WHICH, SRC, BIN, PGXS, INCLUDE, LIBPATH, and
# CLIENT_LINK, the linker options for a client program of these binaries.
locate() {
    local cache binaries root='' config libs
    cache=${PGSEAL_CACHE:-$PGSEAL_ROOT/build/upstream}
    read -r VERSION WHICH binaries <"$cache/current-$MAJOR" || die "run $HERE/fetch.sh $MAJOR first"
    cache=$(cd "$cache/$VERSION" && pwd)
    SRC=$cache/src LIBPATH='' CLIENT_LINK=()
    if [ "$WHICH" = fetched ]; then
        config=$(pg_config_of "$MAJOR") || die "run scripts/postgres-versions.sh fetch $MAJOR first"
        BIN=${config%/*}
        PGXS=$("$config" --pgxs)
        PGXS=${PGXS%/src/makefiles/pgxs.mk}
        INCLUDE=$("$config" --includedir-server)
        # If the server has its own C library, which is newer than this machine's, programs are
        # linked with that C library.
        root=$(postgres_cache)/$MAJOR
        if [ -e "$root/loader" ]; then
            libs=$root/$(dirname "$(cat "$root/loader")")
            CLIENT_LINK=("-L$libs" -Xlinker "--dynamic-linker=$root/$(cat "$root/loader")" -Xlinker "-rpath=$libs"
                -Xlinker --disable-new-dtags -Xlinker --allow-shlib-undefined "$libs/libc.so.6" "$libs/libm.so.6")
        else
            # No C library of its own: build.sh built this server, and libpq is in its libdir.
            LIBPATH=$("$config" --libdir)
        fi
    else
        if [ "$WHICH" = unpacked ]; then
            root=$cache/pg
            LIBPATH=$(dirname "$(find "$root/usr/lib" -name 'libpq.so.5' | head -n 1)" 2>/dev/null)
        fi
        BIN=$root/usr/lib/postgresql/$MAJOR/bin
        PGXS=$root/usr/lib/postgresql/$MAJOR/lib/pgxs
        INCLUDE=$cache/pg/usr/include/postgresql/$MAJOR/server
        [ -d "$INCLUDE" ] || INCLUDE=/usr/include/postgresql/$MAJOR/server
    fi
    CLIENT_LINK+=("-L$("$BIN/pg_config" --pkglibdir)")
    [ -x "$PGXS/src/test/regress/pg_regress" ] || die "no pg_regress in $PGXS"
    [ "$("$BIN/postgres" --version | sed -E 's/^[^0-9]*([0-9.]+).*/\1/')" = "${VERSION%%-*}" ] ||
        die "$BIN/postgres is not of version ${VERSION%%-*} any more; remove ${cache%/*} and run fetch.sh again"
}

# Sets MODE_ENV, the env command that starts every PostgreSQL program of the suite, and in a sealed
# run HELPER, the path of the program pgseal.
mode_env() {
    local library
    MODE_ENV=(env LC_ALL=C.UTF-8 "PATH=$BIN:$PATH")
    [ -z "$LIBPATH" ] || MODE_ENV+=("LD_LIBRARY_PATH=$LIBPATH")
    [ "$MODE" = sealed ] || return 0
    library=${PGSEAL_LIBRARY:-$PGSEAL_ROOT/target/release/libpgseal.so}
    HELPER=${PGSEAL_HELPER:-$PGSEAL_ROOT/target/release/pgseal}
    [ -r "$library" ] || die "$library is missing; run 'make build' first"
    [ -x "$HELPER" ] || die "$HELPER is missing; run 'make build' first"
    MODE_ENV+=("LD_PRELOAD=$library" "PGSEAL_HELPER=$HELPER" PGSEAL_PROVIDER=env:PGSEAL_TEST_KEY
        "PGSEAL_TEST_KEY=$TEST_KEY" PGSEAL_GUARD=off)
    [ -z "${PGSEAL_SUITE:-}" ] || MODE_ENV+=("PGSEAL_SUITE=$PGSEAL_SUITE")
}

# private_installation: copies the PostgreSQL under test to $WORK/pg, so that test modules can be
# installed there, and sets BIN, PGXS and MODE_ENV to the copy. The copy works because PostgreSQL
# finds its files relative to its program.
private_installation() {
    local root=${BIN%/usr/lib/postgresql/"$MAJOR"/bin} part lib=usr/lib/postgresql/$MAJOR
    [ "$root" != "$BIN" ] || die "$BIN: not where Debian has its programs; modules cannot be installed in a copy"
    for part in "$lib" "usr/share/postgresql/$MAJOR"; do
        mkdir -p "$WORK/pg/$part"
        cp -r "$root/$part/." "$WORK/pg/$part"
    done
    mkdir -p "$WORK/pg/usr/include"
    ln -s "${INCLUDE%/"$MAJOR"/server}" "$WORK/pg/usr/include/postgresql"
    # PostgreSQL's build has a library with those parts of libpgcommon.a that libpq leaves out.
    # Debian packages only the whole libpgcommon.a.
    [ ! -e "$WORK/pg/$lib/lib/libpgcommon.a" ] ||
        ln -s libpgcommon.a "$WORK/pg/$lib/lib/libpgcommon_excluded_shlib.a"
    BIN=$WORK/pg/$lib/bin
    PGXS=$WORK/pg/$lib/lib/pgxs
    mode_env
}

# make_in DIR TARGET...: runs make with PGXS and the private installation. LIBS has only the
# libraries that the programs use; PostgreSQL's own list has those of the whole server.
make_in() {
    local dir=$1 options=
    shift
    [ ! -e "$(postgres_cache)/$MAJOR/loader" ] || options="-include $HERE/newer-libc.h"
    make -s -C "$dir" -o submake-libpgfeutils USE_PGXS=1 "PG_CONFIG=$BIN/pg_config" with_llvm=no \
        "COPT=$options" "PG_LDFLAGS=${CLIENT_LINK[*]}" "LIBS=-lpgcommon -lpgport -lssl -lcrypto -lm" "$@"
}

# build_modules: builds the C modules of the regression tests in $WORK/lib.
build_modules() {
    local module source
    mkdir -p "$WORK/lib"
    for module in src/test/regress/regress contrib/spi/refint contrib/spi/autoinc; do
        source=$SRC/$module.c
        gcc -O2 -shared -fPIC -DREFINT_VERBOSE -I"$INCLUDE" -I"$(dirname "$source")" \
            -o "$WORK/lib/$(basename "$module").so" "$source" ||
            die "cannot compile $module.c; are the headers of PostgreSQL $MAJOR installed?"
    done
}

# start_server PORT SETTING...: creates a cluster in $WORK/data and starts a server that listens
# only on a Unix socket in $WORK.
start_server() {
    local port=$1
    shift
    # Both modes use checksums: GCM needs them, and the plain run must be comparable.
    "${MODE_ENV[@]}" "$BIN/initdb" -k -D "$WORK/data" -U postgres -A trust --locale=C.UTF-8 --encoding=UTF8 \
        --no-sync >"$RESULTS/initdb.log" 2>&1 || {
        tail -n 15 "$RESULTS/initdb.log"
        die "initdb failed"
    }
    {
        say "port = $port"
        say "unix_socket_directories = '$WORK'"
        say "listen_addresses = ''"
        say "fsync = off"
        printf '%s\n' "$@"
    } >>"$WORK/data/postgresql.conf"
    "${MODE_ENV[@]}" "$BIN/pg_ctl" -D "$WORK/data" -l "$RESULTS/server.log" -w -t 300 start >/dev/null 2>&1 || {
        tail -n 15 "$RESULTS/server.log"
        die "the server does not start"
    }
}

stop_server() {
    "${MODE_ENV[@]}" "$BIN/pg_ctl" -D "$WORK/data" -m fast -w -t 300 stop >/dev/null 2>&1 ||
        die "the server does not stop"
}

# check_what_is_on_disk DATADIR: checks that a sealed run really sealed its files. In a plain
# cluster, pg_class contains the names of system catalogs, which shows that the search works.
check_what_is_on_disk() {
    local found
    found=$( (grep -rlaF pg_attribute "$1/base" 2>/dev/null || true) | wc -l)
    case "$MODE" in
    plain) [ "$found" -gt 0 ] || die "found no catalog rows in the plain cluster $1: the search is blind" ;;
    sealed)
        [ "$found" = 0 ] || die "NOT SEALED: $found files below base/ of the sealed cluster are readable"
        [ -e "$1/pgseal/keyring" ] || die "NOT SEALED: the sealed cluster has no keyring"
        ;;
    esac
}

# parse_pg_regress LOG: prints "test TAB ok|failed" for each test, from pg_regress's output (15:
# "test x ... ok", 16 and newer: TAP).
parse_pg_regress() {
    awk '
        /^(not )?ok [0-9]+ +[-+] / {
            verdict = ($1 == "not") ? "failed" : "ok"
            sub(/^(not )?ok [0-9]+ +[-+] /, ""); print $1 "\t" verdict; next
        }
        /\.\.\. (ok|FAILED|failed)/ {
            verdict = ($0 ~ /\.\.\. ok/) ? "ok" : "failed"
            name = ($1 == "test") ? $2 : $1; print name "\t" verdict
        }' "$1"
}

# finish_pg_regress STATUS: writes the results, prints the suite's own closing line, and prints the
# differences if the suite failed.
finish_pg_regress() {
    local status=$1 total failed
    parse_pg_regress "$RESULTS/run.log" >"$RESULTS/results.tsv"
    total=$(wc -l <"$RESULTS/results.tsv")
    failed=$(awk -F '\t' '$2 != "ok" { print $1 }' "$RESULTS/results.tsv")
    grep -E '^ *(#.*)?(All [0-9]+ tests|[0-9]+ of [0-9]+ tests)' "$RESULTS/run.log" || true
    if [ "$status" = 124 ] || [ "$status" = 137 ]; then
        die "stopped after the limit of $LIMIT_S seconds"
    fi
    if [ "$status" != 0 ] || [ -n "$failed" ] || [ "$total" = 0 ]; then
        for file in regression.diffs output_iso/regression.diffs; do
            [ -s "$WORK/out/$file" ] || continue
            cp "$WORK/out/$file" "$RESULTS/regression.diffs"
            head -n 60 "$WORK/out/$file"
        done
        [ "$total" != 0 ] || tail -n 15 "$RESULTS/run.log"
        die "$SUITE, $MODE: failed: ${failed:-see ${RESULTS#"$PGSEAL_ROOT"/}/run.log}"
    fi
    say "$SUITE, $MODE: $total of $total ok (PostgreSQL $VERSION)"
}
