#!/usr/bin/perl
# scan.pl MARKER DIRECTORY...: searches all files below the directories for the marker as text, as
# UTF-16, in hexadecimal digits and in base64. Prints one line per file and form: path TAB form.
use strict;
use warnings;
use File::Find;
use MIME::Base64;

my ($marker, @dirs) = @ARGV;
die "a marker of at least 8 bytes, and directories\n" if length($marker // '') < 8 || !@dirs;
my %form;
$form{$marker} = 'text';
$form{ join '', map { "$_\0" } split //, $marker } = 'UTF-16';
$form{ join '', map { "\0$_" } split //, $marker } = 'UTF-16';
$form{ unpack 'H*', $marker } = 'hex';
$form{ uc unpack 'H*', $marker } = 'hex';
for my $shift (0 .. 2) {
    my $text = encode_base64('x' x $shift . $marker, '');
    # Leaves out the base64 characters that also depend on the bytes before and after the marker.
    my $from = int((8 * $shift + 5) / 6);
    my $to = int(8 * ($shift + length $marker) / 6);
    $form{ substr $text, $from, $to - $from } = 'base64';
}
my $any = join '|', map { quotemeta } sort { length $b <=> length $a } keys %form;
my $overlap = 4 * length $marker;
find({ no_chdir => 1, follow_fast => 1, follow_skip => 2, wanted => sub {
    return unless -f $_;
    open my $file, '<:raw', $_ or return;
    my ($block, $rest) = ('', '');
    my %seen;
    while (read $file, $block, 1 << 20) {
        my $text = $rest . $block;
        while ($text =~ /($any)/go) { $seen{ $form{$1} } = 1 }
        $rest = length $text > $overlap ? substr $text, -$overlap : $text;
    }
    print "$File::Find::name\t$_\n" for sort keys %seen;
} }, @dirs);
