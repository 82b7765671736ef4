#!/usr/bin/env bash
# check-extension.sh: each C file of server/extension uses functions and variables of the rows below
# its own only, in the drawing of server/extension/README.md.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$PGSEAL_ROOT/server/extension"

# "FILE ROW" in lines; row 1 is the lowest.
rows=$(sed -n '/^```$/,/^```$/p' README.md | grep -v '```' | tac |
    awk '{ for (i = 1; i <= NF; i++) print $i ".c", NR }')
drawn=$(awk '{ print $1 }' <<<"$rows" | sort)
[ "$drawn" = "$(printf '%s\n' *.c | sort)" ] ||
    die "server/extension/README.md: the drawing and the files differ: $(comm -3 <(printf '%s\n' "$drawn") <(printf '%s\n' *.c | sort) | xargs)"

# The code without comments, as "FILE:LINE" in lines.
code() {
    local file
    for file in *.c; do
        perl -0pe 's{/\*.*?\*/}{}gs; s{"(?:[^"\\]|\\.)*"}{}g' "$file" | sed "s/^/$file:/"
    done
}
all=$(code)
# What the header declares (pgseal_refresh is the one function in it, and calls pgseal_reread), and
# where it is defined.
names=$(perl -0pe 's{/\*.*?\*/}{}gs' pgseal.h | grep -oP '^(PGSEAL_NORETURN )?extern [^;(]*\b\Kpgseal_\w+(?=[;(])' | sort -u)
defined=$(grep -P '^[a-z_]+\.c:(\w[\w \t]*\**)?pgseal_\w+(\(| = )' <<<"$all" |
    sed -E 's/^([a-z_]+\.c):.*\b(pgseal_[a-z0-9_]+)(\(| = ).*/\2 \1/' | grep -wFf <(printf '%s\n' "$names") | sort -u)
[ "$(wc -l <<<"$defined")" = "$(wc -l <<<"$names")" ] ||
    die "a name of pgseal.h is defined nowhere or twice: $(comm -3 <(printf '%s\n' "$names") <(awk '{ print $1 }' <<<"$defined") | xargs)"

wrong=$(sed 's/\bpgseal_refresh\b/pgseal_reread/g' <<<"$all" | grep -oP '^[a-z_]+\.c:|\bpgseal_\w+' | awk '
    NR == FNR { row[$1] = $2; next }
    FILENAME != "-" { home[$1] = $2; next }
    /:$/ { file = substr($0, 1, length($0) - 1); next }
    ($0 in home) && home[$0] != file && row[home[$0]] >= row[file] {
        text = file " uses " $0 " of " home[$0]
        if (!(text in told)) { told[text] = 1; print text }
    }' <(printf '%s\n' "$rows") <(printf '%s\n' "$defined") -)
[ -z "$wrong" ] || die "server/extension: a row may use the rows below it only:
$wrong"
