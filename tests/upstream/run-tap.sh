#!/usr/bin/env bash
# run-tap.sh [--major N] [--mode plain|sealed] [--jobs N] [--limit SECONDS] [--keep] [SUITE
# [FILE...]]
#
# Runs a TAP suite of PostgreSQL against plain or sealed servers. SUITE is the name of a directory
# of src/test, or a path such as src/bin/pg_rewind or contrib/bloom (default: recovery); FILE is,
# for example, t/001_stream_rep.pl. Every file must pass, except that in a sealed run the files that
# skip.tsv names must fail. The limit is for the whole run; one file may take a third of it.
# Results: build/results/SUITE-MAJOR-MODE/ (each slash of SUITE becomes a dot); if FILE is given,
# build/results/SUITE-MAJOR-MODE-part/.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

LIMIT_S=1800
upstream_start recovery "$@"
SUITE=${REST[0]:-recovery}
files=("${REST[@]:1}")
case "$SUITE" in
*/*) dir=$SUITE ;;
*) dir=src/test/$SUITE ;;
esac
[ -d "$SRC/$dir/t" ] || die "PostgreSQL $VERSION has no TAP suite $dir"
perl -MIPC::Run -e 1 2>/dev/null || die "perl's IPC::Run is missing; run scripts/setup.sh upstream"
part=
[ ${#files[@]} = 0 ] || part=-part
results_in "${SUITE//\//.}-$MAJOR-$MODE$part"
mkdir -p "$RESULTS/files" "$WORK/bin" "$WORK/tree/$dir" "$WORK/tree/src/test/regress"
build_modules
gcc -O2 -Wall -o "$WORK/bin/poke" "$HERE/poke.c"

# The suites read files of their own directory and of the directory of the core tests.
cp -r "$SRC/$dir/." "$WORK/tree/$dir"
[ "$SUITE" = regress ] || cp -r "$SRC/src/test/regress/." "$WORK/tree/src/test/regress"
# Builds the modules and programs that the tests use and Debian does not package.
case "$dir" in
src/test/modules/*)
    private_installation
    make_in "$WORK/tree/$dir" all install >"$RESULTS/make.log" 2>&1 || die "cannot build $dir; see $RESULTS/make.log"
    ;;
src/interfaces/libpq)
    for program in "$WORK/tree/$dir"/test/*.c; do
        gcc -O2 -I"$INCLUDE" -I"${INCLUDE%/"$MAJOR"/server}" -o "${program%.c}" "$program" \
            "${CLIENT_LINK[@]}" -lpq -lpgcommon -lpgport \
            >>"$RESULTS/make.log" 2>&1 || die "cannot build $program; see $RESULTS/make.log"
    done
    ;;
esac
# pgseal's default cipher suite, GCM, requires checksums, but the tests call initdb without -k.
# Therefore a sealed run has this wrapper, which also checks that each cluster is really sealed.
if [ "$MODE" = sealed ]; then
    cat >"$WORK/bin/initdb" <<WRAPPER
#!/bin/sh
case "\$PGSEAL_SUITE" in
*xts) '$BIN/initdb' "\$@" || exit ;;
*) '$BIN/initdb' "\$@" -k || exit ;;
esac
while [ \$# -gt 0 ]; do
    case "\$1" in
    -D | --pgdata) [ -e "\$2/pgseal/keyring" ] || { echo "NOT SEALED: \$2 has no keyring" >&2; exit 1; } ;;
    esac
    shift
done
WRAPPER
    chmod +x "$WORK/bin/initdb"
fi

# Tests read pg_config.h below pg_config --includedir. An unpacked or fetched server has this file
# only in the server's include directory.
cat >"$WORK/bin/pg_config" <<WRAPPER
#!/bin/sh
[ "\$*" != --includedir ] || { echo '$INCLUDE'; exit 0; }
exec '$BIN/pg_config' "\$@"
WRAPPER
chmod +x "$WORK/bin/pg_config"

# The nodes of a run share their keys, as the nodes of a fleet do, so that a node can read WAL that
# another node archived.
if [ "$MODE" = sealed ]; then
    mkdir -m 0700 "$WORK/template"
    env "PGSEAL_TEST_KEY=$TEST_KEY" "$HELPER" helper new-keyring --dir "$WORK/template" \
        --provider env:PGSEAL_TEST_KEY || die "no keyring for the nodes to share could be made"
    MODE_ENV+=("PGSEAL_KEYRING_FROM=$WORK/template/pgseal/keyring")
fi

cd "$WORK/tree/$dir"
[ ${#files[@]} -gt 0 ] || files=(t/*.pl)

# tap-file.sh preloads the library into the test processes; prove runs without the library.
environment=() library=''
for setting in "${MODE_ENV[@]}"; do
    case "$setting" in
    LD_PRELOAD=*) library=${setting#LD_PRELOAD=} ;;
    *) environment+=("$setting") ;;
    esac
done
environment+=("REGRESS_SHLIB=$WORK/lib/regress.so" "TESTDIR=$WORK/tree/$dir"
    "TESTDATADIR=$WORK/tree/$dir/tmp_check" "TESTLOGDIR=$WORK/tree/$dir/tmp_check/log" "top_builddir=$WORK/tree"
    "PATH=$WORK/tree/$dir:$WORK/tree/$dir/test:$WORK/bin:$BIN:$PATH"
    PGPORT=54160 "PG_REGRESS=$PGXS/src/test/regress/pg_regress" PG_TEST_EXTRA=
    "TAP_SUITE=$SUITE" "TAP_MODE=$MODE" "TAP_LIBRARY=$library" "TAP_OUT=$RESULTS/files"
    "TAP_HERE=$HERE" "TAP_PERL=$SRC/src/test/perl" "TAP_LIMIT_S=$((LIMIT_S / 3))" "TAP_TEMPLATE=$WORK/template")
# The variables that PostgreSQL's own build passes to its tests: the options of the build, and the
# programs that exist on this machine.
while read -r name value; do
    case "$value" in
    /* | gzip)
        command -v "$value" >/dev/null || continue
        if [ "$MODE" = sealed ] && [ -e "$HERE/sealed-bin/${value##*/}" ]; then value=$HERE/sealed-bin/${value##*/}; fi
        ;;
    esac
    environment+=("$name=$value")
done < <(sed -nE 's/^(with_[a-z_]+|enable_injection_points|TAR|LZ4|ZSTD|OPENSSL|PYTHON)[ \t]*= *([^ ]+)$/\1 \2/p
    s/^GZIP[ \t]*= *([^ ]+)$/GZIP_PROGRAM \1/p' "$PGXS/src/Makefile.global")
status=0
timeout --kill-after=30 "$LIMIT_S" "${environment[@]}" prove -j"$JOBS" --exec "$HERE/tap-file.sh" "${files[@]}" \
    >"$RESULTS/run.log" 2>&1 </dev/null || status=$?
stop_servers_below "$WORK"

# Writes one line per file, and one line per test for compare.sh.
ok=0 skipped=0 known=0 bad=()
configured=$("$BIN/pg_config" --configure)
for file in "${files[@]}"; do
    base=$(basename "$file")
    name=${base%.pl}
    tap=$RESULTS/files/$name.tap
    code=$(cat "$RESULTS/files/$name.status" 2>/dev/null || echo none)
    count=$(grep -cE '^ok [0-9]+' "$tap" 2>/dev/null || true)
    verdict=failed
    if [ "$code" = 0 ] && grep -q '^1\.\.0 # [Ss][Kk][Ii][Pp]' "$tap"; then
        verdict=skipped
    elif [ "$code" = 0 ] && [ "${count:-0}" -gt 0 ] &&
        grep -qE '^1\.\.[0-9]+' "$tap"; then
        verdict=ok
    fi
    reason=
    [ "$MODE" = plain ] ||
        reason=$(awk -F '\t' -v file="$SUITE/$base" -v built="$configured" \
            '$1 == file && ($3 == "" || index(built, $3)) { print $2 }' "$HERE/skip.tsv")
    note=
    case "$verdict" in
    ok)
        ok=$((ok + 1)) note="$count tests"
        if [ -n "$reason" ]; then
            verdict='ok, though in skip.tsv'
            bad+=("$base") note="passes, though skip.tsv says: $reason"
        fi
        ;;
    skipped) skipped=$((skipped + 1)) note=$(sed -nE 's/^1\.\.0 # [Ss][Kk][Ii][Pp] *//p' "$tap") ;;
    failed)
        if [ -n "$reason" ]; then
            verdict='known failure' known=$((known + 1)) note=$reason
        else
            bad+=("$base") note="exit status $code"
            mkdir -p "$RESULTS/logs"
            cp -r tmp_check/log/*"$name"* "$RESULTS/logs/" 2>/dev/null || true
        fi
        ;;
    esac
    printf '%-42s %s (%s)\n' "$SUITE/$base" "$verdict" "$note"
    printf '%s\t%s\n' "$base" "$verdict" >>"$RESULTS/results.tsv"
    # A test's name may contain ports, paths and numbers that differ between runs; the test's number
    # is always the same.
    sed -nE "s/^(not )?ok ([0-9]+).*/$name \2\t\1ok/p" "$tap" >>"$RESULTS/tests.tsv" 2>/dev/null || true
done
tail -n 2 "$RESULTS/run.log"
if [ "$status" = 124 ] || [ "$status" = 137 ]; then die "stopped after the limit of $LIMIT_S seconds"; fi
if [ ${#bad[@]} -gt 0 ]; then
    die "$SUITE, $MODE: ${bad[*]}: neither passed nor (rightly) in skip.tsv; see ${RESULTS#"$PGSEAL_ROOT"/}"
fi
if [ $((ok + known)) = 0 ]; then
    say "$SUITE, $MODE: all $skipped files skipped by PostgreSQL itself (PostgreSQL $VERSION)"
    exit 0
fi
# Only the failures of files that skip.tsv names excuse an exit status of prove other than 0.
[ "$status" = 0 ] || [ "$known" -gt 0 ] || die "$SUITE, $MODE: prove ended with $status"
say "$SUITE, $MODE: $ok files ok, $known known failures, $skipped skipped by PostgreSQL itself (PostgreSQL $VERSION)"
