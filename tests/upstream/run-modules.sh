#!/usr/bin/env bash
# run-modules.sh [--major N] [--mode plain|sealed] [--limit SECONDS] [--keep] [DIR...]
#
# Runs the regression and isolation tests of PostgreSQL's contrib modules, procedural languages and
# test modules (DIR: for example contrib/bloom or src/test/modules/test_rls_hooks; default: all that
# have such tests). Each module has its own plain or sealed server with the settings that the
# module's Makefile requires. Modules that Debian does not package are built and installed in a copy
# of the PostgreSQL under test. The limit is for one module. In a sealed run the tests that skip.tsv
# names (modules/DIR/TEST) must fail. Results: build/results/modules-MAJOR-MODE/; if DIR is given,
# build/results/modules-MAJOR-MODE-part/.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

LIMIT_S=600
upstream_start modules "$@"
dirs=("${REST[@]}")
part=
[ ${#dirs[@]} = 0 ] || part=-part
results_in "$SUITE-$MAJOR-$MODE$part"
private_installation
build_modules
cp -r "$SRC" "$WORK/tree"
cp "$WORK/lib/regress.so" "$PGXS/src/test/regress/"
cat >"$WORK/variables.mk" <<'MAKEFILE'
include Makefile
.PHONY: variables
variables:
	@echo "REGRESS $(REGRESS)"
	@echo "ISOLATION $(ISOLATION)"
	@echo "REGRESS_OPTS $(REGRESS_OPTS)"
	@echo "ISOLATION_OPTS $(ISOLATION_OPTS)"
MAKEFILE
PORT=54153
if [ ${#dirs[@]} = 0 ]; then
    mapfile -t dirs < <(cd "$WORK/tree" && for makefile in contrib/*/Makefile src/test/modules/*/Makefile \
        src/pl/*/{GNUm,M}akefile src/pl/*/src/Makefile; do
        if grep -sqE '^(REGRESS|ISOLATION) *\+?=' "$makefile"; then dirname "$makefile"; fi
    done)
fi

makefile() { if [ -e "$1/GNUmakefile" ]; then say "$1/GNUmakefile"; else say "$1/Makefile"; fi; }

# variables DIR: prints the Makefile's REGRESS, ISOLATION and their options, one per line. A
# Makefile that does not support PGXS is parsed as text.
variables() {
    local dir=$WORK/tree/$1
    if grep -q USE_PGXS "$(makefile "$dir")"; then
        make_in "$dir" -f "$WORK/variables.mk" variables 2>"$RESULTS/make.err"
    else
        sed -e ':a' -e '/\\$/N; s/\\\n//; ta' "$(makefile "$dir")" |
            sed -nE 's/[^ ]*\$[(][^ ]*//g; s/^(REGRESS|ISOLATION|REGRESS_OPTS|ISOLATION_OPTS) *[:+]?= */\1 /p'
    fi
}

# installed DIR: builds and installs the module if Debian does not package it.
installed() {
    case "$1" in
    src/test/modules/*)
        make_in "$WORK/tree/$1" all install >"$RESULTS/make.log" 2>&1 || {
            tail -n 5 "$RESULTS/make.log"
            return 1
        }
        ;;
    esac
}

# lacks DIR: prints what the module needs and the PostgreSQL under test does not have.
lacks() {
    local language=
    case "$1" in
    contrib/*_plperl | src/pl/plperl) language=plperl ;;
    contrib/*_plpython | src/pl/plpython) language=plpython3u ;;
    src/pl/tcl) language=pltcl ;;
    esac
    if [ -n "$language" ] && [ ! -e "$WORK/pg/usr/share/postgresql/$MAJOR/extension/$language.control" ]; then
        say "$language"
    elif grep -q 'injection_points' "$(makefile "$WORK/tree/$1")" &&
        ! "$BIN/pg_config" --configure | grep -F enable-injection-points >/dev/null; then
        say "injection points"
    fi
}

# run_module DIR: runs the module's tests against a new server.
run_module() {
    local dir=$1 name=${1//\//.} kind tests options option program why status=0
    local -A found=()
    while read -r kind tests; do found[$kind]=$tests; done < <(variables "$dir")
    [ -n "${found[REGRESS]:-}${found[ISOLATION]:-}" ] || return 0
    why=$(lacks "$dir")
    if [ -n "$why" ]; then
        say "$SUITE, $MODE: $dir: not run, the server was built without $why"
        return 0
    fi
    installed "$dir" || {
        printf '%s\tnot built\n' "$dir" >>"$RESULTS/results.tsv"
        return 0
    }
    rm -rf "$WORK/data" "$WORK/out"
    mkdir -p "$WORK/out"
    cp -r "$WORK/template" "$WORK/data"
    chmod 0700 "$WORK/data"
    # For these settings PostgreSQL's own build starts a separate server (--temp-config).
    for option in ${found[REGRESS_OPTS]:-} ${found[ISOLATION_OPTS]:-}; do
        option=$WORK/tree/$dir/$(basename -- "${option#--temp-config=}")
        case "$option" in *.conf) if [ -e "$option" ]; then cat "$option" >>"$WORK/data/postgresql.conf"; fi ;; esac
    done
    # PGHOST lets connections that the server makes to itself find the server's socket.
    "${MODE_ENV[@]}" "PGHOST=$WORK" "$BIN/pg_ctl" -D "$WORK/data" -l "$RESULTS/$name.server.log" -w -t 60 start \
        >/dev/null 2>&1 || {
        tail -n 5 "$RESULTS/$name.server.log"
        printf '%s\tno server\n' "$dir" >>"$RESULTS/results.tsv"
        return 0
    }
    for kind in REGRESS ISOLATION; do
        [ -n "${found[$kind]:-}" ] || continue
        case "$kind" in
        REGRESS) program=$PGXS/src/test/regress/pg_regress options=${found[REGRESS_OPTS]:-} ;;
        ISOLATION) program=$PGXS/src/test/isolation/pg_isolation_regress options=${found[ISOLATION_OPTS]:-} ;;
        esac
        options=$(sed -E 's/--temp-config[= ][^ ]*//g; s/--temp-instance[= ][^ ]*//g' <<<"$options")
        # shellcheck disable=SC2086 # words of a Makefile
        (cd "$WORK/tree/$dir" && timeout --kill-after=10 "$LIMIT_S" "${MODE_ENV[@]}" "$program" \
            --inputdir="$WORK/tree/$dir" --outputdir="$WORK/out" --bindir="$BIN" --dlpath="$WORK/lib" \
            --host="$WORK" --port=$PORT --user=postgres --dbname=contrib_regression $options \
            ${found[$kind]}) >"$RESULTS/$name.$kind.log" 2>&1 </dev/null || status=$?
        parse_pg_regress "$RESULTS/$name.$kind.log" | sed "s|^|$dir/|" >>"$RESULTS/results.tsv"
        if ! grep -qE '(ok|FAILED|failed)' "$RESULTS/$name.$kind.log"; then
            printf '%s/%s\tnothing ran\n' "$dir" "$kind" >>"$RESULTS/results.tsv"
        fi
    done
    if [ "$status" != 0 ]; then
        find "$WORK/out" -name regression.diffs -exec cat {} + >"$RESULTS/$name.diffs"
    fi
    "${MODE_ENV[@]}" "$BIN/pg_ctl" -D "$WORK/data" -m fast -w -t 120 stop >/dev/null 2>&1 ||
        printf '%s\tdoes not stop\n' "$dir" >>"$RESULTS/results.tsv"
    say "$SUITE, $MODE: $dir: $(grep -c "^$dir/.*"$'\tok$' "$RESULTS/results.tsv" || true) ok$(
        bad=$(grep -E "^$dir(/[^ ]*)?"$'\t' "$RESULTS/results.tsv" | grep -v $'\tok$' | cut -f 1 | paste -sd ' ')
        [ -z "$bad" ] || printf ', not: %s' "$bad")"
}

start_server $PORT 'max_prepared_transactions = 3' 'wal_level = logical'
stop_server
mv "$WORK/data" "$WORK/template"
: >"$RESULTS/results.tsv"
for dir in "${dirs[@]}"; do run_module "$dir"; done
check_what_is_on_disk "$WORK/data"

bad=()
while IFS=$'\t' read -r test verdict; do
    reason=
    [ "$MODE" = plain ] || reason=$(awk -F '\t' -v test="modules/$test" '$1 == test { print $2 }' "$HERE/skip.tsv")
    if [ "$verdict" = ok ] && [ -n "$reason" ]; then
        bad+=("$test (passes, though skip.tsv names it)")
        sed -i "s|^$test"$'\t'"ok\$|&, though in skip.tsv|" "$RESULTS/results.tsv"
    fi
    if [ "$verdict" != ok ] && [ -z "$reason" ]; then bad+=("$test"); fi
done <"$RESULTS/results.tsv"
total=$(wc -l <"$RESULTS/results.tsv")
[ "$total" != 0 ] || die "$SUITE, $MODE: nothing ran"
if [ ${#bad[@]} -gt 0 ]; then
    die "$SUITE, $MODE: ${bad[*]}: neither passed nor (rightly) in skip.tsv; see ${RESULTS#"$PGSEAL_ROOT"/}"
fi
say "$SUITE, $MODE: $total of $total ok or known (PostgreSQL $VERSION)"
