# Loaded into a TAP file (plain-view.tsv: cat): what the file itself opens with "<:raw" comes from 'pgseal cat'
# if it is sealed. The rest of the file's process stays without the plain view, so that the copies it makes of
# data directories are copies of sealed files.
package PlainView;
use strict;
use warnings;

sub is_sealed
{
	my ($path) = @_;
	CORE::open(my $in, '<:raw', $path) or return 0;
	my $got = CORE::read($in, my $magic, 8);
	CORE::close($in);
	return $got && $magic eq "\x89PGSEAL\n";
}

sub open_plain(*;$@)
{
	if (@_ == 3 && $_[1] eq '<:raw' && is_sealed($_[2]))
	{
		return CORE::open($_[0], '-|:raw', $ENV{PGSEAL_HELPER}, 'cat', $_[2]);
	}
	return CORE::open($_[0], $_[1]) if @_ == 2;
	return CORE::open($_[0], $_[1], @_[ 2 .. $#_ ]);
}

sub import
{
	no strict 'refs';
	*{'main::open'} = \&open_plain;
	return;
}

1;
