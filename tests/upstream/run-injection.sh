#!/usr/bin/env bash
# run-injection.sh [MAJOR...]   (default: 18)
#
# Runs the suites of PostgreSQL's tree that have tests for injection points, on plain and on sealed
# servers that build.sh builds with injection points, and compares the results. Results:
# build/results/injection.
set -euo pipefail
. "$(dirname "$0")/../../scripts/lib.sh"
cd "$PGSEAL_ROOT"
HERE=tests/upstream

read_options "" "$@"
majors=("${REST[@]}")
[ ${#majors[@]} -gt 0 ] || majors=(18)
for major in "${majors[@]}"; do
    [ "$(pg_config_of "$major")" ] || scripts/postgres-versions.sh fetch "$major"
    "$HERE/fetch.sh" "$major"
    "$HERE/build.sh" "$major"
    read -r version _ <"${PGSEAL_CACHE:-build/upstream}/current-$major"
    source=${PGSEAL_CACHE:-build/upstream}/$version/src
    # The regression and isolation tests of all modules, and every TAP suite that uses injection
    # points.
    mapfile -t suites < <(cd "$source" && grep -rl injection_point --include='*.pl' src contrib |
        sed -E 's#/t/[^/]*$##; s#^src/test/(authentication|recovery|subscription)$#\1#' | sort -u)
    names=$(IFS=, && echo "modules,${suites[*]}")
    PGSEAL_POSTGRES_CACHE=$PWD/build/upstream/injection "$HERE/run-tree.sh" --name injection --only "$names" "$major"
done
