#!/usr/bin/env bash
# kubernetes-check.sh   checks the manifests of packaging/kubernetes against the schemas of what
#                       they are sent to
#
# Kubernetes' own objects against the schemas in the Python package kubernetes-validate, those of
# the operators against their CRDs, which come with the operators' source as Go modules (Apache-2.0,
# MIT), in pinned versions with pinned checksums. A field that a schema does not have is a fault,
# not only one of a wrong type. Rules in CEL (x-kubernetes-validations) and the operators' own
# checks are not evaluated.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$PGSEAL_ROOT"

# MODULE VERSION CHECKSUM (that of go.sum) FILE
CRDS="
github.com/cloudnative-pg/cloudnative-pg v1.30.0 h1:fnhVq44xXx97MNiuvJsPrX1vSjYbgdyBK5MSGfdHdp0= config/crd/bases/postgresql.cnpg.io_clusters.yaml
github.com/cloudnative-pg/cloudnative-pg v1.30.0 h1:fnhVq44xXx97MNiuvJsPrX1vSjYbgdyBK5MSGfdHdp0= config/crd/bases/postgresql.cnpg.io_imagecatalogs.yaml
github.com/zalando/postgres-operator v1.15.1 h1:WjZA6KySmDw4bpY77lk/5P+vYCAf2xMCmVl/EOyu7Ww= manifests/postgresql.crd.yaml
"
python=build/tools/kubernetes/bin/python3
[ -x $python ] || die "the schemas of Kubernetes are missing; run scripts/setup.sh kubernetes"

# An empty module: nothing of this directory is read or written.
empty=$(mktemp -d)
trap 'rm -rf "$empty"' EXIT
crds=()
while read -r module version checksum file; do
    [ -n "$module" ] || continue
    answer=$(cd "$empty" && go mod download -json "$module@$version") || die "$module $version: $(jq -r .Error <<<"$answer")"
    [ "$(jq -r .Sum <<<"$answer")" = "$checksum" ] || die "$module $version is not what it was: $(jq -r .Sum <<<"$answer")"
    crds+=("$(jq -r .Dir <<<"$answer")/$file")
done <<<"$CRDS"

mapfile -t manifests < <(find packaging/kubernetes -name '*.yaml' | LC_ALL=C sort)
[ ${#manifests[@]} -gt 0 ] || die "no manifests"
$python scripts/kubernetes-check.py "${crds[@]}" -- "${manifests[@]}"
