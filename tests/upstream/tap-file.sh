#!/usr/bin/env bash
# tap-file.sh FILE: runs one TAP file for run-tap.sh (prove's --exec), at most $TAP_LIMIT_S seconds.
# Its output goes to prove and to $TAP_OUT/NAME.tap, its exit status to $TAP_OUT/NAME.status. If it
# bails out, it fails, and the other files still run. A sealed run uses its settings in
# settings.tsv.
set -u
file=$1
name=$(basename "$file" .pl)
mode=("TAP_MODE=$TAP_MODE") modules=(-I "$TAP_PERL")
if [ "$TAP_MODE" = sealed ]; then
    mode=("LD_PRELOAD=$TAP_LIBRARY")
    for setting in $(awk -F '\t' -v file="$TAP_SUITE/$name.pl" '$1 == file { print $2 }' "$TAP_HERE/settings.tsv"); do
        case "$setting" in
        PlainView) modules+=(-I "$TAP_HERE" -MPlainView) ;;
        # The keys that the nodes share are of the default suite.
        PGSEAL_SUITE=*) mode=(-u PGSEAL_KEYRING_FROM "${mode[@]}" "$setting") ;;
        *) mode+=("${setting//TEMPLATE/$TAP_TEMPLATE}") ;;
        esac
    done
fi
# In the foreground: the limit on the whole run then reaches this process group too.
timeout --foreground --kill-after=20 "$TAP_LIMIT_S" env "${mode[@]}" perl "${modules[@]}" "$file" |
    tee "$TAP_OUT/$name.tap" | sed -u 's/^Bail out!/# bailed out:/'
status=${PIPESTATUS[0]}
echo "$status" >"$TAP_OUT/$name.status"
[ "$status" != 124 ] || echo "# $name: stopped after $TAP_LIMIT_S seconds"
exit "$status"
