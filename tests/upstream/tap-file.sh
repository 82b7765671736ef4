#!/usr/bin/env bash
# tap-file.sh FILE: runs one TAP file for run-tap.sh (prove's --exec), at most $TAP_LIMIT_S seconds.
# The file's output goes to prove and to $TAP_OUT/NAME.tap, its exit status to $TAP_OUT/NAME.status.
# If the file bails out, the file fails, and the other files still run. In a sealed run the file has
# the settings that settings.tsv gives for it.
set -u
file=$1
name=$(basename "$file" .pl)
mode=("TAP_MODE=$TAP_MODE") modules=(-I "$TAP_PERL")
if [ "$TAP_MODE" = sealed ]; then
    mode=("LD_PRELOAD=$TAP_LIBRARY")
    for setting in $(awk -F '\t' -v file="$TAP_SUITE/$name.pl" '$1 == file { print $2 }' "$TAP_HERE/settings.tsv"); do
        case "$setting" in
        PlainView) modules+=(-I "$TAP_HERE" -MPlainView) ;;
        # The shared keyring is of the default cipher suite, so another suite cannot use it.
        PGSEAL_SUITE=*) mode=(-u PGSEAL_KEYRING_FROM "${mode[@]}" "$setting") ;;
        *) mode+=("${setting//TEMPLATE/$TAP_TEMPLATE}") ;;
        esac
    done
fi
# --foreground keeps the process group, so that the limit on the whole run also ends this test.
timeout --foreground --kill-after=20 "$TAP_LIMIT_S" env "${mode[@]}" perl "${modules[@]}" "$file" |
    tee "$TAP_OUT/$name.tap" | sed -u 's/^Bail out!/# bailed out:/'
status=${PIPESTATUS[0]}
echo "$status" >"$TAP_OUT/$name.status"
[ "$status" != 124 ] || echo "# $name: stopped after $TAP_LIMIT_S seconds"
exit "$status"
