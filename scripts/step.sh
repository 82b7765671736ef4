#!/usr/bin/env bash
# step.sh WHAT SECONDS COMMAND [ARGUMENT...]
#
# Says what is done next and about how long that takes on this machine, runs COMMAND, and says how
# long it took. SECONDS is the time on two idle cores when nothing is built yet. A failure ends with
# COMMAND's exit status.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

case ${1:-} in
-h | --help)
    usage
    exit 0
    ;;
esac
[ $# -ge 3 ] || die "want: WHAT SECONDS COMMAND"
what=$1 seconds=$2
shift 2
[[ $seconds =~ ^[0-9]+$ ]] || die "$seconds is no number of seconds"
cores=$(nproc)
# More than six cores wait for the crates and links that need one core only.
[ "$cores" -le 6 ] || cores=6
seconds=$(((seconds * 2 + cores - 1) / cores))
if [ "$seconds" -ge 100 ]; then about="$(((seconds + 30) / 60)) min"; else about="$seconds s"; fi

say "== $what (about $about)"
start=$SECONDS
status=0
"$@" || status=$?
if [ "$status" = 0 ]; then
    say "-- $what: $((SECONDS - start)) s"
else
    warn "$what failed after $((SECONDS - start)) s"
fi
exit "$status"
