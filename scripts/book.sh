#!/usr/bin/env bash
# book.sh build: makes one searchable site out of README.md, docs/ and spec/, in build/book/html,
# with mdbook, and checks that each link within the site leads to a page and to a heading that
# exists, and each picture to a file. The order is that of docs/README.md. Marks of docs-test.sh are
# left out; a link to a file that is no page becomes its text.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$PGSEAL_ROOT"

[ "${1:-}" = build ] || {
    usage
    exit 1
}
mdbook=$(command -v mdbook || say build/tools/bin/mdbook)
[ -x "$mdbook" ] || die "mdbook is not here; run: scripts/setup.sh book"
book=build/book
src=$book/src
rm -rf "$book"
mkdir -p "$src"

# The title of a page: its first heading.
title() { sed -n '/^# /{s/^# //p;q}' "$1" | tr -d '`'; }

pages=(README.md ARCHITECTURE.md CONTRIBUTING.md RELEASING.md SECURITY.md CHANGELOG.md docs/*.md spec/*.md)
for page in "${pages[@]}"; do
    mkdir -p "$src/$(dirname "$page")"
    perl -0pe '
        s/<!-- docs-test:.*?-->\n//gs;
        s/\[([^\]]+)\]\((?:\.\.\/)?(?:crates|packaging|scripts|server|tests|tools|vectors|LICENSE)[^)]*\)/$1/g;
        # The first page of a directory is its index.
        s/\]\(((?:[^)#]*\/)?)README\.md/]($1index.md/g;
    ' "$page" >"$src/${page/README.md/index.md}"
done

mkdir -p "$src/docs/img"
cp docs/img/* "$src/docs/img/"

# The chapters: the sections and pages of docs/README.md, each page once.
declare -A seen=()
{
    printf '# Summary\n\n[pgseal](index.md)\n[Documentation, by task](docs/index.md)\n'
    section=''
    while IFS= read -r line; do
        case "$line" in '## '*) section=${line#\#\# } ;; esac
        [ -n "$section" ] || continue
        while IFS= read -r page; do
            [ -n "$page" ] || continue
            case "$page" in ../*) page=${page#../} ;; *) page=docs/$page ;; esac
            [ -z "${seen[$page]:-}" ] && [ -e "$src/$page" ] || continue
            [ -z "$section" ] || [ "${seen[#]:-}" = "$section" ] || printf '\n# %s\n\n' "$section"
            seen[#]=$section seen[$page]=yes
            printf -- '- [%s](%s)\n' "$(title "$page")" "$page"
        done < <(grep -oE '\]\([^)]*\.md' <<<"$line" | sed 's/^](//')
    done <docs/README.md
    printf '\n# The project\n\n'
    for page in "${pages[@]}"; do
        if [ -z "${seen[$page]:-}" ] && [ "${page##*/}" != README.md ]; then printf -- '- [%s](%s)\n' "$(title "$page")" "$page"; fi
    done
} >"$src/SUMMARY.md"

cat >"$book/book.toml" <<'TOML'
[book]
title = "pgseal"
language = "en"
src = "src"

[build]
build-dir = "html"
create-missing = false

[output.html]
default-theme = "light"
preferred-dark-theme = "navy"

[output.html.search]
limit-results = 20
TOML
"$mdbook" build "$book" 2>&1 | grep -E 'WARN|ERROR' >&2 && die "mdbook warns; see above"

# Links within the site: the page, and the heading in it.
mapfile -t site < <(find "$book/html" -name '*.html' ! -name 404.html ! -name toc.html)
perl -MFile::Basename -MFile::Spec -e '
    my (%ids, %links);
    for my $file (@ARGV) {
        local $/;
        open my $in, "<", $file or die "$file: $!";
        my $text = <$in>;
        $ids{$file}{$1} = 1 while $text =~ / id="([^"]*)"/g;
        push @{$links{$file}}, $1 while $text =~ / (?:href|src)="([^"]*)"/g;
    }
    my ($count, $bad) = (0, 0);
    for my $file (sort keys %links) {
        for my $link (@{$links{$file}}) {
            next if $link =~ /^(?:[a-z]+:|\/\/)/;
            my ($path, $id) = split /#/, $link, 2;
            my $to = $path eq "" ? $file : dirname($file) . "/" . $path;
            1 while $to =~ s{[^/]+/\.\./}{};
            $to =~ s{/\./}{/}g;
            $count++;
            next if -e $to && (!defined $id || $id eq "" || $to !~ /\.html$/ || $ids{$to}{$id});
            # The page of the whole book for printing has the headings of all pages.
            next if $file =~ /print\.html$/;
            print STDERR "$file: $link leads nowhere\n";
            $bad++;
        }
    }
    print "book: $count links within the site, $bad of them broken\n";
    exit($bad > 0);
' "${site[@]}" || die "correct the links of these pages"
say "built $book/html/index.html"
