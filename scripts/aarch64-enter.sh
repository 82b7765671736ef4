#!/usr/bin/env bash
# aarch64-enter.sh FIFO ROOT QEMU PROJECT COMMAND [ARGUMENT...]
#
# For in_aarch64 of lib/aarch64.sh, in a new user and mount namespace: waits for a line from FIFO,
# when the users are mapped; registers QEMU for programs of arm64; and runs COMMAND in ROOT, which
# sees the project's directory.
set -euo pipefail
read -r _ <"$1"
root=$2 qemu=$3 project=$4 dir=$PWD
shift 4
if mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc 2>/dev/null; then
    # The head of an executable or shared object of ELF, 64 bits, little-endian, for the machine
    # EM_AARCH64. With F the kernel opens QEMU now, so that it need not be in ROOT.
    head='\x7f\x45\x4c\x46\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
    mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
    printf '%s' ":qemu-aarch64:M::$head:$mask:$qemu:F" >/proc/sys/fs/binfmt_misc/register
elif [ ! -e /proc/sys/fs/binfmt_misc/qemu-aarch64 ]; then
    echo "${0##*/}: this kernel cannot register qemu in a namespace (Linux 6.7 and later can), and it is not" \
        "registered on this machine" >&2
    exit 1
fi
mkdir -p "$root$project"
mount --bind "$project" "$root$project"
# What was built for arm64 is where the project's scripts look for what was built.
for part in release guard extension; do
    built=$project/target/aarch64-unknown-linux-gnu/$part
    if [ -d "$built" ]; then
        mkdir -p "$project/target/$part"
        mount --bind "$built" "$root$project/target/$part"
    fi
done
# Its results have a directory of their own.
mkdir -p "$project/build/results/aarch64"
mount --bind "$project/build/results/aarch64" "$root$project/build/results"
mount --rbind /proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
exec env PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TMPDIR=/tmp LC_ALL=C.UTF-8 chroot "$root" /usr/bin/env -C "$dir" "$@"
