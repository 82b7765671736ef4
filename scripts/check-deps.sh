#!/usr/bin/env bash
# check-deps.sh: checks that only the crates in scripts/preload-deps.tsv are linked into the
# preloaded library, and only those in scripts/column-deps.tsv into the extension. So pgseal brings
# no network, TLS or async code into a server's process. Also checks that the program pgseal, which
# unlocks keys, links nothing that only the lab measures with.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$PGSEAL_ROOT"

forbidden='^(tokio|async-|smol|mio$|futures|reqwest|hyper|h2$|http|ureq|curl|isahc|tonic|quinn|rustls|native-tls|openssl|webpki|socket2|hickory|trust-dns|tungstenite|aws-sdk|aws-smithy|nix$)'

# check WHAT CRATE ALLOWED
check() {
    local what=$1 crate=$2 allowed=$3 names tree extra other
    if names=$(grep -v '^#' "$allowed" | cut -f 1 | grep -E "$forbidden"); then
        die "$allowed names crates that must never be in the $what: $names"
    fi
    # --locked, because the lock file decides what is built.
    tree=$(cargo tree --locked -p "$crate" -e normal --target all --prefix none --format '{p}' |
        cut -d ' ' -f 1 | sort -u)
    extra=$(comm -23 <(printf '%s\n' "$tree") <(grep -v '^#' "$allowed" | cut -f 1 | sort -u))
    if [ -n "$extra" ]; then
        for other in $extra; do
            warn "$other is in the tree of $crate and not in $allowed"
        done
        die "see 'cargo tree -p $crate -e normal -i CRATE'; add it with its reason, or keep it out"
    fi
    say "$what: $(wc -l <<<"$tree") crates, all of them in $allowed; no network, TLS or async crate"
}

# check_without WHAT CRATE UNWANTED: none of the crates that the pattern UNWANTED names is in the
# tree of CRATE.
check_without() {
    local what=$1 crate=$2 unwanted=$3 tree found
    tree=$(cargo tree --locked -p "$crate" -e normal --target all --prefix none --format '{p}' |
        cut -d ' ' -f 1 | sort -u)
    if found=$(grep -E "$unwanted" <<<"$tree"); then
        die "the $what must not use: ${found//$'\n'/ }; see 'cargo tree -p $crate -e normal -i CRATE'"
    fi
    say "$what: $(wc -l <<<"$tree") crates, none of the lab"
}

check "preloaded library" pgseal-preload scripts/preload-deps.tsv
check "column library" pgseal-column scripts/column-deps.tsv
# The lab, performance counters, TPC-H rows, CSV, profiles, libraries loaded at run time.
check_without "program pgseal" pgseal-cli '^(pgseal-(lab|bench|cluster|testkit)|perf-event|tpchgen|csv|toml|libloading|tempfile)(-|$)'
