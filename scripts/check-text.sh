#!/usr/bin/env bash
# check-text.sh: checks that hand-written Markdown has no line over 100 columns (except table rows,
# code blocks and single long words), nor a comment of a source file that has its line to itself
# (except table rows), that relative links lead to files, that docs/README.md names every page of
# docs/ and spec/, and that the table of costs in README.md has the figures of docs/costs.md.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$PGSEAL_ROOT"

WIDTH=100
# Pages that programs write as a whole. Other pages contain marks around the parts that programs
# write.
GENERATED=(spec/hooks.md spec/libraries.md spec/threat-model-file-layer.inc.md)

if git rev-parse --git-dir >/dev/null 2>&1; then
    mapfile -t files < <(git ls-files --cached --others --exclude-standard | sort)
else
    mapfile -t files < <(find . \( -path ./target -o -path ./build \) -prune -o -type f -printf '%P\n' | sort)
fi
pages=() slashes=() stars=() hashes=()
for file in "${files[@]}"; do
    [ -f "$file" ] || continue
    case "$file" in
    *.md) pages+=("$file") ;;
    *.rs | *.go) slashes+=("$file") ;;
    *.c | *.h) stars+=("$file") ;;
    *.sh | *.yml | *.yaml | *.conf | *.service | Makefile | *Containerfile | .ci/run) hashes+=("$file") ;;
    esac
done
written=()
for page in "${pages[@]}"; do
    case " ${GENERATED[*]} " in *" $page "*) ;; *) [ ! -f "$page" ] || written+=("$page") ;; esac
done

long_lines() {
    awk -v width="$WIDTH" '
        FNR == 1 { fence = ""; made = 0; mark = 0 }
        # Commands of the test of a page, which are not shown.
        mark { if (/-->$/) mark = 0; next }
        fence == "" && /^<!-- docs-test: / { mark = !/-->$/; next }
        made { if (/^<!-- (\/|.*: end)/) made = 0; next }
        fence != "" { if (index($1, fence) == 1 && $1 ~ /^(`+|~+)$/) fence = ""; next }
        match($0, /^ *(```+|~~~+)/) { fence = substr($0, 1, RLENGTH); gsub(/ /, "", fence); next }
        /^<!-- (.*: begin|checks:|bench -->)/ { made = 1; next }
        /^ *\|/ || length($0) <= width { next }
        {
            line = $0
            sub(/^ *([-*+]|[0-9]+[.)])? */, "", line)
            if (line ~ / /) print FILENAME ":" FNR ": " length($0) " columns"
        }
    ' "${written[@]}"
}

# long_comments BEGIN FILE...: comments over 100 columns; BEGIN is what such a line begins with.
long_comments() {
    awk -v width="$WIDTH" -v begin="^[ \\t]*$1" '
        length($0) > width && $0 ~ begin && $2 != "|" {
            print FILENAME ":" FNR ": " length($0) " columns"
        }
    ' "${@:2}"
}

# Prints relative links that lead to no file. Ignores links in code, URLs and links within a page.
dead_links() {
    local page target
    for page in "${written[@]}"; do
        while IFS= read -r target; do
            [ -e "$(dirname "$page")/$target" ] || say "$page: link to $target, which is not there"
        done < <(awk '/^ *(```|~~~)/ { code = !code; next } !code' "$page" | sed 's/`[^`]*`//g' |
            grep -oE '\]\([^)# ]+' | sed 's/^](//' | grep -vE '^[a-z]+:' || true)
    done
}

unlisted() {
    local page
    for page in docs/*.md spec/*.md; do
        case "$page" in
        docs/README.md) ;;
        docs/*) grep -qF "](${page#docs/}" docs/README.md || say "$page is not named in docs/README.md" ;;
        *) grep -qF "](../$page" docs/README.md || say "$page is not named in docs/README.md" ;;
        esac
    done
}

# Rows of a table of costs end in figures.
other_costs() {
    local row rows=0
    while IFS= read -r row; do
        rows=$((rows + 1))
        grep -qxF -- "$row" docs/costs.md || say "README.md: not in docs/costs.md: $row"
    done < <(grep -E '\| [0-9]+\.[0-9]+ \|$' README.md)
    [ "$rows" -gt 0 ] || say "README.md has no table of costs"
}

bad=$(
    long_lines
    long_comments // "${slashes[@]}"
    long_comments '/?[*][ *]' "${stars[@]}"
    long_comments '# ' "${hashes[@]}"
    dead_links
    unlisted
    other_costs
)
[ -z "$bad" ] || {
    say "$bad" | head -n 40
    die "text: see above"
}
say "Markdown: ${#written[@]} pages, $WIDTH columns, links and index whole"
