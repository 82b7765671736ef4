#!/usr/bin/env bash
# hooks-audit.sh: lists every file call of the C library that the programs and modules of each PostgreSQL here
# import, and fails if one of them is neither exported by libpgseal.so nor named in spec/hooks.md. This looks
# at whole installations from the outside; the library does the same at start-up with the running program.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$PGSEAL_ROOT"

library=target/release/libpgseal.so
[ -e "$library" ] || die "$library is missing; run 'make build' first"
command -v nm >/dev/null || die "nm (binutils) is missing; run scripts/setup.sh build"
calls='^(__)?(f?x?stat(at|fs|vfs)?|l?xstat|lstat|statx?|open(at|2|_2|at_2)?|creat|close|p?(read|write)v?2?|(p?read|fgets|fread)_chk|fopen|fdopen|freopen|fclose|fread|fwrite|fgets|fputs|fputc|fgetc|getc|putc|getline|fseeko?|ftello?|fflush|fileno|fprintf|vfprintf|fscanf|ungetc|setvbuf|lseek|ftruncate|truncate|posix_fallocate|fallocate|posix_fadvise|readahead|sync_file_range|fsync|fdatasync|syncfs|sync|mmap|munmap|mremap|msync|rename(at|at2)?|unlink(at)?|remove|link(at)?|symlink(at)?|readlink(at)?|copy_file_range|sendfile|splice|tee|dup[23]?|fcntl|ioctl|opendir|fdopendir|readdir|scandir|mkstemps?|mkostemps?|tmpfile|io_uring_.*|aio_.*|lio_listio|syscall)(64)?(_chk)?$'

hooked=$(nm -D --defined-only "$library" | awk '{ print $NF }' | cut -d @ -f 1 | sort -u)
named=$(sed -nE 's/^\| *`([a-z_0-9]+)`.*/\1/p' spec/hooks.md 2>/dev/null | sort -u || true)
unknown=0
for config in $(pg_configs); do
    imported=$(
        for file in "$("$config" --bindir)"/* "$("$config" --pkglibdir)"/*.so; do
            nm -D --undefined-only "$file" 2>/dev/null || true
        done | awk '{ print $NF }' | cut -d @ -f 1 | sort -u | grep -E "$calls"
    )
    missing=$(comm -23 <(printf '%s\n' "$imported") <(printf '%s\n%s\n' "$hooked" "$named" | sort -u))
    say "PostgreSQL $(pg_major "$config"): $(wc -l <<<"$imported") file calls imported," \
        "$(comm -12 <(printf '%s\n' "$imported") <(printf '%s\n' "$hooked") | wc -l) hooked"
    if [ -n "$missing" ]; then
        unknown=1
        say "neither hooked nor named in spec/hooks.md:" "$(tr '\n' ' ' <<<"$missing")"
    fi
done
exit "$unknown"
