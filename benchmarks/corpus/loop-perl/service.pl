# A linked list that a request may tie to a ring; one thread.  service.pl PORT RATES
use strict;
use warnings;
use IO::Socket::INET;
use IO::Socket::UNIX;

my ($port, $rates) = @ARGV;
my $list = { next => undef };
my $last = $list;

sub ask {
    return if $rates eq "0";
    while (1) {
        my $sock = $rates =~ m{^/} ? IO::Socket::UNIX->new(Peer => $rates) : IO::Socket::INET->new("127.0.0.1:$rates");
        my $text = $sock ? <$sock> // "" : "";
        return if $text =~ /^\d/;
        select(undef, undef, undef, 0.05);
    }
}

my $listening = IO::Socket::INET->new(LocalAddr => "127.0.0.1:$port", Listen => 16, ReuseAddr => 1) or die "cannot listen: $!";
while (my $client = $listening->accept) {
    my $line = <$client> // "";
    while (defined(my $more = <$client>)) { last if $more =~ /^\r?\n$/ }
    if ($line =~ m{^GET /add}) { $last->{next} = { next => undef }; $last = $last->{next} }
    if ($line =~ m{^GET /ring}) { $last->{next} = $list }
    if ($line =~ m{^GET /walk}) {
        ask();
        for (my $at = $list; $at; $at = $at->{next}) { }
    }
    print $client "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
    close $client;
}
