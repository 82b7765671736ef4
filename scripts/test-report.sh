#!/usr/bin/env bash
# test-report.sh [PAGE...]
#
# Opens pages of 'pgseal lab' in a real browser (Debian's chromium, headless, without network) at
# 1400 and at 400 pixels, light and dark, and checks in each of the four: the console stays silent,
# charts are drawn, tables sort, nothing is wider than its card or the screen, cards of a row are
# equally high, each link of the navigation can be touched, text has enough contrast, each arm has
# one colour in all charts and none is red, a finding has at most twenty words and one number, and
# the tiles, or the banner about noise, are on the first screen. Without PAGE: the recorded pages of
# the tests, and each report.html below tools/pgseal-lab/results. The pictures of each go to
# build/results/report. With PGSEAL_BLESS=1, the first screen of one of them becomes
# docs/img/lab-report.png.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

case "${1:-}" in
-h | --help)
    usage
    exit 0
    ;;
esac
browser=$(command -v chromium || command -v chromium-browser) ||
    die "no chromium here; install it: scripts/setup.sh report"
command -v python3 >/dev/null || die "no python3 here; install it: scripts/setup.sh report"
pages=("$@")
if [ ${#pages[@]} = 0 ]; then
    mapfile -t pages < <(
        ls "$PGSEAL_ROOT"/tools/pgseal-lab/tests/data/*.html
        find "$PGSEAL_ROOT/tools/pgseal-lab/results" -name report.html 2>/dev/null | sort
    )
fi
[ ${#pages[@]} -gt 0 ] || die "no page to look at"
for page in "${pages[@]}"; do
    [ -s "$page" ] || die "$page: no such page"
done
mapfile -t pages < <(realpath "${pages[@]}")
shots=$PGSEAL_ROOT/build/results/report
mkdir -p "$shots"
python3 "$PGSEAL_ROOT/scripts/browse-report.py" "$browser" "$shots" "${pages[@]}" ||
    die "a page is not as it should be (see above); its pictures: $shots"
# The picture in docs/lab.md is one of these.
picture=$shots/results-modes-report-1400-light-first.png
if [ -n "${PGSEAL_BLESS:-}" ]; then
    [ -e "$picture" ] || die "the report that docs/lab.md shows was not looked at; run this without a PAGE"
    cp "$picture" "$PGSEAL_ROOT/docs/img/lab-report.png"
fi
say "pictures: $shots"
