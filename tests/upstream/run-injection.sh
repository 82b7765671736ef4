#!/usr/bin/env bash
# run-injection.sh [MAJOR...]   (default: 18)
#
# The suites of PostgreSQL's tree that have tests for a server with injection points, plain and
# sealed, compared, on a server that build.sh builds with them. Results: build/results/injection.
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
    # Modules by their regression and isolation tests, all others by their TAP files.
    mapfile -t suites < <(cd "$source" && grep -rl injection_point --include='*.pl' src contrib |
        sed -E 's#/t/[^/]*$##; s#^src/test/(authentication|recovery|subscription)$#\1#' | sort -u)
    names=$(IFS=, && echo "modules,${suites[*]}")
    PGSEAL_POSTGRES_CACHE=$PWD/build/upstream/injection "$HERE/run-tree.sh" --name injection --only "$names" "$major"
done
