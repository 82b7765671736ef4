#!/usr/bin/env bash
# check-deps.sh: proves that nothing but the crates in scripts/preload-deps.tsv is linked into the preloaded
# library, and nothing but those in scripts/column-deps.tsv into the extension, so that no network, TLS or async
# code can be in a database server's process because of pgseal.
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
    # The lock file decides what is built; a tree that would need another one is no proof.
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

check "preloaded library" pgseal-preload scripts/preload-deps.tsv
check "column library" pgseal-column scripts/column-deps.tsv
