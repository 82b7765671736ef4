#!/usr/bin/env bash
# docs.sh install|uninstall MANDIR BASHDIR ZSHDIR FISHDIR: the man page and the shell completions, which the
# program writes itself.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$PGSEAL_ROOT"

action=$1
man=$2/pgseal.1 bash=$3/pgseal zsh=$4/_pgseal fish=$5/pgseal.fish
program=target/release/pgseal

# generate FILE ARGUMENT...
generate() {
    local file=$1 text
    shift
    if ! text=$("$program" "$@" 2>/dev/null) || [ -z "$text" ]; then
        warn "'pgseal $*' wrote nothing: $file not installed"
        return 0
    fi
    install -d "$(dirname "$file")"
    printf '%s\n' "$text" >"$file"
    chmod 0644 "$file"
    say "installed $file"
}

case "$action" in
install)
    generate "$man" man
    generate "$bash" completions bash
    generate "$zsh" completions zsh
    generate "$fish" completions fish
    ;;
uninstall) rm -f "$man" "$bash" "$zsh" "$fish" ;;
*) die "install or uninstall?" ;;
esac
