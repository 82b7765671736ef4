#!/usr/bin/env bash
# docs.sh install|uninstall MANDIR BASHDIR ZSHDIR FISHDIR: installs or removes the man pages and the
# shell completions, which the programs themselves write.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$PGSEAL_ROOT"

action=$1 mandir=$2 bashdir=$3 zshdir=$4 fishdir=$5

# generate FILE PROGRAM ARGUMENT...
generate() {
    local file=$1 program=$2 text
    shift 2
    if ! text=$(run_built "$program" "$@" 2>/dev/null) || [ -z "$text" ]; then
        warn "'$program $*' wrote nothing: $file not installed"
        return 0
    fi
    install -d "$(dirname "$file")"
    printf '%s\n' "$text" >"$file"
    chmod 0644 "$file"
    say "installed $file"
}

# The pages of pgseal and of all its subcommands.
pages() {
    if ! run_built pgseal man --dir "$mandir"; then
        warn "'pgseal man --dir $mandir' failed: manual pages not installed"
        return 0
    fi
    chmod 0644 "$mandir"/pgseal.1 "$mandir"/pgseal-*.1
    say "installed $mandir/pgseal.1 and the pages of its subcommands"
}

for program in pgseal pgseal-lab; do
    man=$mandir/$program.1 bash=$bashdir/$program zsh=$zshdir/_$program fish=$fishdir/$program.fish
    case "$action" in
    install)
        if [ "$program" = pgseal ]; then pages; else generate "$man" "$program" man; fi
        generate "$bash" "$program" completions bash
        generate "$zsh" "$program" completions zsh
        generate "$fish" "$program" completions fish
        ;;
    uninstall)
        rm -f "$man" "$bash" "$zsh" "$fish"
        if [ "$program" = pgseal ]; then rm -f "$mandir"/pgseal-*.1; fi
        ;;
    *) die "install or uninstall?" ;;
    esac
done
