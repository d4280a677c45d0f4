# A process for each connection, with the connection as its input and output, as inetd.  inetd.pl PORT COMMAND...
use strict;
use warnings;
use IO::Socket::INET;

my ($port, @command) = @ARGV;
$SIG{CHLD} = "IGNORE";
my $listening = IO::Socket::INET->new(LocalAddr => "127.0.0.1:$port", Listen => 16, ReuseAddr => 1) or die "cannot listen: $!";
while (1) {
    my $client = $listening->accept or next;
    my $child = fork // die "cannot fork: $!";
    if ($child == 0) {
        $SIG{CHLD} = "DEFAULT";
        open(STDIN, "<&", $client) && open(STDOUT, ">&", $client) or die "no connection: $!";
        close $listening;
        close $client;
        exec @command or die "cannot execute: $!";
    }
    close $client;
}
