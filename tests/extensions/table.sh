#!/usr/bin/env bash
# table.sh RESULTS: writes the tables of docs/extensions.md, between their markers, from the results
# of the last runs.
set -euo pipefail
. "$(dirname "$0")/../../scripts/lib.sh"

results=${1:?where are the results?}
doc=$PGSEAL_ROOT/docs/extensions.md
reasons=$PGSEAL_ROOT/tests/extensions/reasons.tsv

# rows FILE: prints the results in FILE as rows of a Markdown table.
rows() {
    awk -F '\t' -v reasons="$reasons" '
        BEGIN { while ((getline line < reasons) > 0) { if (line !~ /^#/) { split(line, part, "\t"); reason[part[1]] = part[2] } } }
        {
            gsub(/\|/, "\\|")
            remark = ($2 == "same") ? "" : (($1 in reason) ? reason[$1] : "not explained: " $5)
            printf "| %s | %s | %s | %s | %s |\n", $1, $3, $4, ($2 == "same") ? "yes" : "**no**", remark
        }' "$1"
}

table() {
    case "$1" in
    workloads)
        say "| workload | extensions | what was tried | sealed = plain | remarks |"
        say "|---|---|---|---|---|"
        rows "$results/workloads.tsv"
        ;;
    create)
        say "| package | version | what is in it | sealed = plain | remarks |"
        say "|---|---|---|---|---|"
        grep -v '^recovery	' "$results/create.tsv" >"$results/create.rows"
        rows "$results/create.rows"
        rm "$results/create.rows"
        ;;
    esac
}

for part in workloads create; do
    [ -s "$results/$part.tsv" ] || die "no results of $part in $results; run scripts/extensions.sh run"
    grep -qF "<!-- $part: begin" "$doc" && grep -qF "<!-- $part: end -->" "$doc" || die "$doc has no markers for $part"
    { sed "/<!-- $part: begin/q" "$doc" && say '' && table $part && say '' && sed -n "/<!-- $part: end -->/,\$p" "$doc"; } >"$doc.new"
    mv "$doc.new" "$doc"
done
say "written: docs/extensions.md"
