#!/usr/bin/env bash
# crate-table.sh write|check: the crate table of ARCHITECTURE.md, between its marks.
#
# A row is a crate of the workspace: its directory and name, its description, where it may contain
# unsafe code, and the crates that it depends on (normal dependencies, with all features). The table
# is the list of allowed dependencies: 'check' (part of 'make lint') fails if a crate uses another
# one that its row does not name, or if anything else in the table differs from the manifests and
# the sources. 'write' ('make crate-table') writes the table anew, so that a new dependency appears
# in the diff of ARCHITECTURE.md, where a reviewer sees it.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$PGSEAL_ROOT"

PAGE=ARCHITECTURE.md
BEGIN='<!-- crates: begin, written by make crate-table -->'
END='<!-- crates: end -->'

action=${1:-}
case "$action" in
write | check) ;;
*)
    usage
    exit 1
    ;;
esac
for mark in "$BEGIN" "$END"; do
    [ "$(grep -cxF -- "$mark" "$PAGE")" = 1 ] || die "$PAGE must have this line exactly once: $mark"
done

# Lines "0CRATE vVERSION (DIRECTORY)", each followed by lines "1CRATE vVERSION ..." of its direct
# dependencies.
tree=$(cargo tree --locked --workspace --all-features -e normal --depth 1 --no-dedupe --prefix depth --format '{p}')

# Lines "CRATE DEPENDENCY", of what the manifests say.
used() { awk '/^0/ { crate = substr($1, 2) } /^1/ { print crate, substr($1, 2) }' <<<"$tree" | sort -u; }

# Lines "CRATE DEPENDENCY", of what the table allows.
allowed() {
    printf '%s\n' "$table" | awk -F ' *[|] *' '/^\| `/ {
        crate = $2
        gsub(/`|.*\//, "", crate)
        count = split($5 ", " $6, names, /, */)
        for (i = 1; i <= count; i++) if (names[i] ~ /^[a-z]/) print crate, names[i]
    }' | sort -u
}

# unsafe_code DIRECTORY: what the attributes of the crate and of its modules say.
unsafe_code() {
    local root roots=() modules
    for root in "$1/src/lib.rs" "$1/src/main.rs"; do [ ! -e "$root" ] || roots+=("$root"); done
    [ "${#roots[@]}" -gt 0 ] || die "$1 has neither src/lib.rs nor src/main.rs"
    if [ -z "$(grep -L '^#!\[forbid(unsafe_code)\]' "${roots[@]}" || true)" ]; then
        say no
    elif [ -z "$(grep -LE '^#!\[(deny|forbid)\(unsafe_code\)\]' "${roots[@]}" || true)" ]; then
        modules=$(grep -rlE '^ *#!?\[allow\([^]]*unsafe_code' "$1/src" | sort | sed "s#^$1/src/\(.*\)#\`\1\`#" | paste -sd , -)
        say "in ${modules//,/, }"
    else
        say yes
    fi
}

# list FILTER: the names that grep FILTER leaves of those of standard input, as one cell.
list() { grep "$@" | paste -sd , - | sed 's/,/, /g' || true; }

rows() {
    local crate directory description names
    say '| crate | what it is | unsafe code | crates of pgseal that it may use | other crates that it may use |'
    say '|---|---|---|---|---|'
    while read -r crate directory; do
        [ "${directory##*/}" = "$crate" ] || die "the directory of $crate must have its name: $directory"
        description=$(sed -nE 's/^description = "(.*)"$/\1/p' "$directory/Cargo.toml")
        [ -n "$description" ] || die "$directory/Cargo.toml has no description of its own: say what the crate is"
        case "$description" in *'|'*) die "the description in $directory/Cargo.toml has a '|', which ends a cell" ;; esac
        names=$(used | sed -n "s/^$crate //p")
        printf '| `%s` | %s | %s | %s | %s |\n' "$directory" "$description" \
            "$(unsafe_code "$directory")" "$(list '^pgseal-' <<<"$names")" "$(list -v '^pgseal-' <<<"$names")"
    done
}

# The product, then what PostgreSQL loads, what measures, and the tests.
members() {
    local part
    for part in crates server tools tests; do
        sed -nE "s#^0([^ ]+) v[^ ]+ \($PGSEAL_ROOT/($part/[^)]*)\).*#\1 \2#p" <<<"$tree" | sort
    done
}

[ "$(members | wc -l)" = "$(grep -c '^0' <<<"$tree")" ] || die "a crate is outside of crates, server, tools and tests"
wanted=$(members | rows)
table=$(awk -v begin="$BEGIN" -v end="$END" '$0 == end { inside = 0 } inside; $0 == begin { inside = 1 }' "$PAGE")

if [ "$action" = write ]; then
    awk -v begin="$BEGIN" -v end="$END" '
        $0 == end { inside = 0 }
        !inside
        $0 == begin { inside = 1; while ((getline line <"/dev/stdin") > 0) print line }
    ' "$PAGE" <<<"$wanted" >"$PAGE.new"
    mv "$PAGE.new" "$PAGE"
    say "wrote the crate table of $PAGE"
    exit
fi

while read -r crate other; do
    warn "$crate uses $other, which $PAGE does not allow"
done < <(comm -23 <(used) <(allowed))
[ "$table" = "$wanted" ] || {
    diff <(say "$table") <(say "$wanted") | head -n 20 >&2 || true
    die "the crate table of $PAGE is not what manifests and sources say (lines with '>');" \
        "take the change back, or change the table on purpose: make crate-table"
}
say "crates: $(members | wc -l), with the dependencies that $PAGE allows"
