#!/usr/bin/env bash
# check-ascii.sh: checks that sources contain only ASCII, so that no look-alike or invisible
# character can hide in them.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$PGSEAL_ROOT"

wanted='(\.(rs|c|go|h|sh|pl|py|sql|toml|tsv|yml|yaml|mk)|(^|/)Makefile|^\.ci/run)$'
if git rev-parse --git-dir >/dev/null 2>&1; then
    files=$(git ls-files --cached --others --exclude-standard)
else
    files=$(find . -path ./target -prune -o -path ./build -prune -o -type f -printf '%P\n')
fi
bad=$(grep -E "$wanted" <<<"$files" | while IFS= read -r file; do
    [ -f "$file" ] && LC_ALL=C grep -nHP '[^\x00-\x7F]' "$file" || true
done)
[ -z "$bad" ] || {
    say "$bad" | head -n 20
    die "sources must be ASCII"
}
say "sources: ASCII only"
