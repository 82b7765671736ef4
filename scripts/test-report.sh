#!/usr/bin/env bash
# test-report.sh [PAGE...]
#
# Opens pages of 'pgseal lab' in a real browser (Debian's chromium, headless, without network) and
# checks that each writes nothing to the console, runs its script to the end, shows its charts and
# tables, and is no wider than a phone's screen. Without PAGE: the recorded pages of the tests, and
# each report.html below tools/pgseal-lab/results. Screenshots (light, dark, 390 pixels wide) go to
# build/results/report.
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
pages=("$@")
if [ ${#pages[@]} = 0 ]; then
    mapfile -t pages < <(
        ls "$PGSEAL_ROOT"/tools/pgseal-lab/tests/data/*.html
        find "$PGSEAL_ROOT/tools/pgseal-lab/results" -name report.html 2>/dev/null | sort
    )
fi
[ ${#pages[@]} -gt 0 ] || die "no page to look at"
shots=$PGSEAL_ROOT/build/results/report
mkdir -p "$shots"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# browse WIDTH,HEIGHT SCHEME ARGUMENT...: SCHEME 0 dark, 1 light
browse() {
    local size=$1 scheme=$2
    shift 2
    timeout 90 "$browser" --headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking \
        --disable-component-update --disable-sync --host-resolver-rules='MAP * ~NOTFOUND' --hide-scrollbars \
        --user-data-dir="$dir/profile" --enable-logging=stderr --window-size="$size" \
        --blink-settings=preferredColorScheme="$scheme" "$@"
}

count() { grep -o -- "$1" "$2" | wc -l; }

# A script that is added to copies of the pages, and records the state of the page at the end.
PROBE='<script>{const r=document.documentElement;r.dataset.wide=String(r.scrollWidth-innerWidth);
r.dataset.drawn=String([...document.querySelectorAll("svg.plot")].filter(s=>s.getBoundingClientRect().height>80).length);
const b=document.querySelector("table.sortable th button");if(b){b.click();
r.dataset.sorted=b.parentNode.getAttribute("aria-sort");}
const p=document.querySelector(".p");if(p){p.dispatchEvent(new PointerEvent("pointermove",{bubbles:true}));
r.dataset.tip=String(!document.getElementById("tip").hidden);}}</script>'

check() {
    local page=$1 name=$2 size=$3 said charts
    local copy=$dir/page.html dom=$dir/dom log=$dir/log
    { sed 's|</body></html>$||' "$page" && printf '%s</body></html>\n' "$PROBE"; } >"$copy"
    browse "$size" 1 --dump-dom "file://$copy" >"$dom" 2>"$log" || die "$name: the browser failed: $(tail -n 3 "$log")"
    said=$(grep -F CONSOLE "$log" || true)
    [ -z "$said" ] || die "$name, $size: the console says: $said"
    charts=$(count '<figure class="chart' "$page")
    [ "$(count '<figure class="chart' "$dom")" = "$charts" ] || die "$name, $size: charts are lost"
    grep -q 'data-script="done"' "$dom" || die "$name, $size: its script did not come to its end"
    grep -q "data-drawn=\"$charts\"" "$dom" || die "$name, $size: not every one of $charts charts is drawn once"
    grep -q 'data-sorted="ascending"' "$dom" || die "$name, $size: its tables do not sort"
    [ "$charts" = 0 ] || grep -q 'data-tip="true"' "$dom" || die "$name, $size: no value where one points"
    grep -qE 'data-wide="(-[0-9]+|0)"' "$dom" || die "$name: wider than a screen of $size"
    say "$name, $size: $charts charts, $(count '<table' "$page") tables, console silent"
}

for page in "${pages[@]}"; do
    [ -s "$page" ] || die "$page: no such page"
    page=$(realpath "$page")
    name=${page#"$PGSEAL_ROOT"/}
    check "$page" "$name" 1280,900
    check "$page" "$name" 390,844
    shot=$shots/$(tr '/' '-' <<<"${name%.html}")
    for form in "light 1280,2600 1" "dark 1280,2600 0" "narrow 390,3200 1"; do
        read -r kind size scheme <<<"$form"
        browse "$size" "$scheme" --screenshot="$shot-$kind.png" "file://$page" 2>/dev/null >/dev/null ||
            die "$name: no screenshot"
    done
done
say "screenshots: $shots"
