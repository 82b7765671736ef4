# In a sealed run, the TAP files with the setting PlainView in settings.tsv load this module. When
# such a test opens a sealed file with "<:raw", it reads the plaintext from 'pgseal cat'. When it
# writes into WAL, the program poke writes through the library, which encrypts the bytes. Perl
# itself sees ciphertext, so that the test's copies of data directories are copies of the sealed
# files.
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

# Replaces PostgreSQL::Test::Cluster::write_wal.
sub write_wal
{
	my ($self, $tli, $lsn, $segment_size, $data) = @_;
	my $path = sprintf("%s/pg_wal/%08X%08X%08X",
		$self->data_dir, $tli, 0, int($lsn / $segment_size));
	die "$path is not sealed" unless is_sealed($path);
	local $ENV{PGSEAL_PROGRAMS} = 'poke';
	CORE::open(my $out, '|-:raw', 'poke', $path, $lsn % $segment_size)
	  or die "could not run poke: $!";
	print $out $data;
	CORE::close($out) or die "poke $path failed: $?";
	return $path;
}

sub import
{
	no strict 'refs';
	*{'main::open'} = \&open_plain;
	return;
}

# Replaces PostgreSQL::Test::Utils::slurp_dir for tests that expect a fixed list of entries in a
# backup: leaves out pgseal/.
sub slurp_dir
{
	my ($dir) = @_;
	opendir(my $handle, $dir) or die "could not open $dir: $!";
	return grep { $_ ne 'pgseal' } readdir $handle;
}

# INIT runs after the modules whose functions it replaces were compiled.
INIT
{
	no warnings 'redefine';
	no strict 'refs';
	*{'main::slurp_dir'} = \&slurp_dir;
	*PostgreSQL::Test::Cluster::write_wal = \&write_wal;
}

1;
