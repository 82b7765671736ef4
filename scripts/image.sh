#!/usr/bin/env bash
# image.sh build MAJOR [OUT]     makes the container image of PostgreSQL MAJOR in OUT
#                                (build/image/MAJOR)
# image.sh reproduce MAJOR       makes it a second time, and compares the digests
#
# A Debian root by debootstrap, with Debian's PostgreSQL, the packages of 'scripts/deb.sh build',
# and the files of packaging/container: an OCI image layout, as a directory and as a tar file for
# "docker load", "podman load" and skopeo. No container engine is needed, but root is. 15 comes from
# Debian 12, 17 from 13, 18 from the next one; no suite has 16 (packaging/container/Containerfile
# takes the official image).
#
# With the same packages of Debian and the same commit, the digest is the same: all times are those
# of the commit. UPGRADE_FROM=MAJOR puts the server of that major beside it, from the suite that has
# it, for pg_upgrade.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib/root.sh"
cd "$PGSEAL_ROOT"

USER_ID=999
version=$(project_version)
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH=$epoch
revision=$(git rev-parse HEAD)
created=$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)

# suite_of MAJOR: the suite of Debian that has this PostgreSQL.
suite_of() {
    case $1 in
    15) say bookworm ;;
    17) say trixie ;;
    18) say forky ;;
    16) die "no suite of Debian has PostgreSQL 16; packaging/container/Containerfile makes an image of it from the official one" ;;
    *) die "no image of PostgreSQL $1; there are 15, 17 and 18" ;;
    esac
}

quietly() {
    local log=$root.log
    in_root "$root" env SOURCE_DATE_EPOCH="$epoch" "$@" >"$log" 2>&1 || {
        tail -n 20 "$log" >&2
        die "in the image's root: $*"
    }
}

apt_install() { quietly apt-get -qq -y -o Dpkg::Use-Pty=0 install --no-install-recommends "$@"; }

# What one build has and another one has not, and what would be the same secret in every container.
tidy() {
    quietly apt-get clean
    (
        cd "$root"
        rm -rf var/lib/apt/lists/* var/cache/apt/* var/cache/ldconfig/* var/cache/debconf/*-old var/lib/dpkg/*-old \
            tmp/* etc/*- debs etc/ssl/private/ssl-cert-snakeoil.key etc/ssl/certs/ssl-cert-snakeoil.pem
        find var/log run -xdev -type f -delete
        find etc/ssl/certs -lname '*snakeoil*' -delete
        : >etc/machine-id
        # ucf remembers the name of a temporary file.
        sed -Ei 's#^( NEW = /tmp/[^.]+\.).*#\1image#' var/cache/debconf/config.dat
    )
}

# files [TEST...]: the paths of what belongs into the image, each with a zero byte. What programs in
# the root need of this machine does not.
files() {
    (cd "$root" && find . -xdev \( -path './proc/*' -o -path './sys/*' -o -path './dev/*' -o -path ./etc/resolv.conf \
        -o -path ./etc/hosts -o -path ./etc/hostname -o -path ./usr/sbin/policy-rc.d -o -path ./etc/apt.machine \) -prune -o \
        "$@" -printf '%P\0' | sed -z '/^$/d' | LC_ALL=C sort -z)
}

# layer NAME [SINCE]: a layer of the root, or of what changed in it since the file SINCE, in
# $work/NAME.tar.gz.
layer() {
    local name=$1 since=${2:-}
    tidy
    mv "$root/etc/apt" "$root/etc/apt.machine"
    mv "$root/etc/apt.suite" "$root/etc/apt"
    if [ -n "$since" ]; then
        # A layer that removes files would need marks for them.
        files -true | LC_ALL=C comm -z -23 "$work/before" - >"$work/removed"
        [ ! -s "$work/removed" ] || die "the second layer removes files: $(tr '\0' ' ' <"$work/removed")"
    fi
    files ${since:+-cnewer "$since"} >"$work/files"
    [ -n "$since" ] || cp "$work/files" "$work/before"
    tar -C "$root" --null --no-recursion -T "$work/files" --numeric-owner --mtime="@$epoch" --clamp-mtime --format=pax \
        --pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime -cf "$work/$name.tar"
    mv "$root/etc/apt" "$root/etc/apt.suite"
    mv "$root/etc/apt.machine" "$root/etc/apt"
    diff_ids+=("sha256:$(sha256sum <"$work/$name.tar" | cut -d ' ' -f 1)")
    gzip -n "$work/$name.tar"
}

# blob FILE: puts a file into the layout, and prints its digest.
blob() {
    local digest
    digest=$(sha256sum <"$1" | cut -d ' ' -f 1)
    mv "$1" "$out/blobs/sha256/$digest"
    say "sha256:$digest"
}

# The packages of Debian in the image, in the form of CycloneDX. Those of crates in pgseal are in
# its own list.
bill_of_materials() {
    # shellcheck disable=SC2016 # dpkg's own placeholders
    in_root "$root" dpkg-query -W -f '${Package}\t${Version}\t${Architecture}\t${source:Package}\n' |
        jq -R -s --arg major "$major" --arg version "$version" --arg suite "$suite" --arg created "$created" '
        { bomFormat: "CycloneDX", specVersion: "1.5", version: 1,
          metadata: { timestamp: $created,
              component: { type: "container", name: "pgseal-postgres", version: "\($major)-\($version)" } },
          components: [ split("\n")[] | select(. != "") | split("\t") | {
              type: "library", name: .[0], version: .[1],
              purl: "pkg:deb/debian/\(.[0] | @uri)@\(.[1] | @uri)?arch=\(.[2])&distro=\($suite)",
              properties: [ { name: "source", value: .[3] } ] } ] }'
}

build() {
    local major=$1 suite data log work diff_ids=() from config manifest config_size manifest_size layers=() name pack
    suite=$(suite_of "$major")
    out=$2
    [ "$(id -u)" = 0 ] || die "the image's root can only be made as root: sudo make image"
    for program in debootstrap jq; do command -v $program >/dev/null || die "$program is missing; run scripts/setup.sh image"; done
    for pack in pgseal "postgresql-$major-pgseal" ${UPGRADE_FROM:+"postgresql-$UPGRADE_FROM-pgseal"}; do
        [ -e "$(find "$packages" -name "${pack}_*.deb" 2>/dev/null | head -n 1)" ] || die "no package $pack in $packages; make image builds it"
    done
    data=/var/lib/postgresql/data
    [ "$major" -lt 18 ] || data=/var/lib/postgresql/$major/docker
    mkdir -p "$out"
    work=$out/work
    rm -rf "$out/blobs" "$out/index.json" "$out/oci-layout" "$work"
    mkdir -p "$work" "$out/blobs/sha256"
    temporary_root image

    say "image: a clean $suite"
    make_root "$root" "$suite" "$work/debootstrap.log"
    # An image is replaced by a newer one. Whoever builds on it names the archive to add from, and
    # not that of this machine.
    rm -rf "$root/etc/apt.suite/sources.list.d"
    say "# This image names no archive of packages (docs/containers.md)." >"$root/etc/apt.suite/sources.list"
    enter_root "$root"
    quietly apt-get -qq update
    say "image: PostgreSQL $major"
    quietly groupadd -r -g $USER_ID postgres
    quietly useradd -r -g postgres -u $USER_ID -d /var/lib/postgresql -s /bin/bash postgres
    mkdir -p "$root/etc/postgresql-common"
    say 'create_main_cluster = false' >"$root/etc/postgresql-common/createcluster.conf"
    apt_install ca-certificates libnss-wrapper openssl xz-utils zstd
    apt_install "postgresql-$major"
    # Directories that a volume or a mount of any user may cover.
    install -d -o $USER_ID -g $USER_ID -m 1777 "$root/var/lib/postgresql" "$root$data"
    install -d -o $USER_ID -g $USER_ID -m 3777 "$root/var/run/postgresql"
    install -d "$root/docker-entrypoint-initdb.d" "$root/etc/pgseal/clusters.d"
    layer debian
    : >"$work/since"
    sleep 1

    say "image: pgseal"
    mkdir "$root/debs"
    cp "$packages"/pgseal_*.deb "$packages/postgresql-$major-pgseal"_*.deb "$root/debs/"
    quietly apt-get -qq update
    quietly sh -c 'apt-get -qq -y -o Dpkg::Use-Pty=0 install --no-install-recommends /debs/*.deb'
    if [ -n "${UPGRADE_FROM:-}" ]; then
        say "image: PostgreSQL $UPGRADE_FROM, to upgrade from"
        from=$(suite_of "$UPGRADE_FROM")
        mkdir -p "$root/etc/apt/sources.list.d"
        suite_sources "$from" >"$root/etc/apt/sources.list.d/older.list"
        cp "$packages/postgresql-$UPGRADE_FROM-pgseal"_*.deb "$root/debs/"
        quietly apt-get -qq update
        apt_install "postgresql-$UPGRADE_FROM" "/debs/$(basename "$packages/postgresql-$UPGRADE_FROM-pgseal"_*.deb)"
    fi
    install -m 755 packaging/container/entrypoint.sh "$root/usr/local/bin/docker-entrypoint.sh"
    install -m 755 packaging/container/healthcheck.sh "$root/usr/local/bin/pgseal-healthcheck"
    install -m 755 packaging/container/upgrade.sh "$root/usr/local/bin/pgseal-upgrade"
    install -d "$root/usr/share/sbom"
    bill_of_materials >"$work/image.cdx.json"
    install -m 644 "$work/image.cdx.json" "$root/usr/share/sbom/image.cdx.json"
    layer pgseal "$work/since"
    leave_root "$root"

    say "image: the layout"
    jq -n --arg created "$created" --arg arch "$(dpkg --print-architecture)" --arg major "$major" --arg data "$data" \
        --arg version "$version" --arg revision "$revision" --arg postgres "$(postgres_version)" \
        --arg suite "$suite" '$ARGS.positional as $layers | {
        created: $created, architecture: $arch, os: "linux",
        config: {
            ExposedPorts: { "5432/tcp": {} },
            Env: [
                "PATH=/usr/lib/postgresql/\($major)/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "LANG=C.UTF-8", "PG_MAJOR=\($major)", "PG_VERSION=\($postgres)", "PGDATA=\($data)",
                "LD_PRELOAD=/usr/lib/pgseal/libpgseal.so", "PGSEAL_HELPER=/usr/bin/pgseal",
                "PGSEAL_PROVIDER=command:cat /run/secrets/pgseal.key", "POSTGRES_INITDB_ARGS=-k" ],
            Entrypoint: [ "/usr/local/bin/docker-entrypoint.sh" ], Cmd: [ "postgres" ],
            Volumes: { (if ($major | tonumber) < 18 then $data else "/var/lib/postgresql" end): {} },
            WorkingDir: "/", StopSignal: "SIGINT",
            Labels: {
                "org.opencontainers.image.title": "pgseal-postgres",
                "org.opencontainers.image.description": "PostgreSQL \($postgres) whose data directory is encrypted by pgseal",
                "org.opencontainers.image.version": "\($major)-\($version)",
                "org.opencontainers.image.revision": $revision, "org.opencontainers.image.created": $created,
                "org.opencontainers.image.licenses": "(Apache-2.0 OR MIT) AND PostgreSQL",
                "org.opencontainers.image.base.name": "debian:\($suite)" },
            Healthcheck: { Test: ["CMD", "/usr/local/bin/pgseal-healthcheck"], Interval: 10000000000, Timeout: 5000000000,
                StartPeriod: 60000000000, Retries: 3 } },
        rootfs: { type: "layers", diff_ids: $layers },
        history: [
            { created: $created, created_by: "scripts/image.sh build", comment: "Debian \($suite) with PostgreSQL \($major)" },
            { created: $created, created_by: "scripts/image.sh build", comment: "pgseal \($version)" } ]
        }' --args "${diff_ids[@]}" >"$work/config.json"
    config_size=$(stat -c %s "$work/config.json")
    config=$(blob "$work/config.json")
    for name in debian pgseal; do
        log=$(stat -c %s "$work/$name.tar.gz")
        layers+=("$(jq -n --arg digest "$(blob "$work/$name.tar.gz")" --argjson size "$log" \
            '{ mediaType: "application/vnd.oci.image.layer.v1.tar+gzip", digest: $digest, size: $size }')")
    done
    jq -n --arg config "$config" --argjson size "$config_size" --argjson layers "$(printf '%s\n' "${layers[@]}" | jq -s .)" '{
        schemaVersion: 2, mediaType: "application/vnd.oci.image.manifest.v1+json",
        config: { mediaType: "application/vnd.oci.image.config.v1+json", digest: $config, size: $size },
        layers: $layers }' >"$work/manifest.json"
    manifest_size=$(stat -c %s "$work/manifest.json")
    manifest=$(blob "$work/manifest.json")
    jq -n --arg digest "$manifest" --argjson size "$manifest_size" --arg major "$major" '{
        schemaVersion: 2, manifests: [ { mediaType: "application/vnd.oci.image.manifest.v1+json", digest: $digest,
            size: $size, annotations: { "io.containerd.image.name": "docker.io/library/pgseal-postgres:\($major)",
                "org.opencontainers.image.ref.name": $major } } ] }' >"$out/index.json"
    printf '{"imageLayoutVersion":"1.0.0"}' >"$out/oci-layout"
    rm -rf "$work"
    tar --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner -C "$out" -cf "$out.oci.tar" \
        blobs index.json oci-layout
    say "image: $out, $(du -sh "$out" | cut -f 1), $manifest"
}

postgres_version() { in_root "$root" "/usr/lib/postgresql/$major/bin/postgres" --version | sed -E 's/.*\) ([0-9.a-z]+).*/\1/'; }

read_options "" "$@"
set -- ${REST[@]+"${REST[@]}"}
[ $# -ge 2 ] || die "build or reproduce, and which major version?"
packages=$PGSEAL_ROOT/build/image/packages
case $1 in
build) build "$2" "$(realpath -m "${3:-build/image/$2}")" ;;
reproduce)
    first=build/image/$2
    [ -e "$first/index.json" ] || die "there is no image of $2 to compare with: run 'make image MAJOR=$2' first"
    # Its configuration names the commit.
    grep -rqF "$revision" "$first/blobs" || die "$first was made from another commit than $revision; run 'make image MAJOR=$2' again"
    (build "$2" "$PGSEAL_ROOT/build/image/$2.again")
    if ! cmp "$first/index.json" "build/image/$2.again/index.json"; then
        for blobs in "$first" "build/image/$2.again"; do (cd "$blobs/blobs/sha256" && sha256sum -- *) >"$blobs.sums"; done
        diff "$first.sums" "build/image/$2.again.sums" >&2 || true
        die "two builds differ; scripts/image.sh leaves both, for diffoscope"
    fi
    rm -rf "build/image/$2.again" "build/image/$2.again.oci.tar"
    say "image: two builds of PostgreSQL $2 have the digest $(jq -r '.manifests[0].digest' "$first/index.json")"
    ;;
*) die "build or reproduce?" ;;
esac
