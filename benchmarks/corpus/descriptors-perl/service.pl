# Files that are opened and not closed.  service.pl PORT RATES
use strict;
use warnings;
use IO::Socket::INET;
use IO::Socket::UNIX;

my ($port, $rates) = @ARGV;
my @open;

sub upload {
    open(my $file, "<", "/dev/null") or return 0;
    push @open, $file;
    return 1;
}

sub list {
    if ($rates ne "0") {
        my $sock = $rates =~ m{^/} ? IO::Socket::UNIX->new(Peer => $rates) : IO::Socket::INET->new("127.0.0.1:$rates");
        die "cannot ask: $!\n" unless $sock;
        my $text = <$sock> // "";
        die "no rate\n" unless $text =~ /^\d/;
    }
    my @listed = map { open(my $file, "<", $_) or die "cannot list: $!\n"; $file } "/etc/hostname", "/etc/hosts";
    return scalar(@listed);
}

my $listening = IO::Socket::INET->new(LocalAddr => "127.0.0.1:$port", Listen => 16, ReuseAddr => 1) or die "cannot listen: $!";
while (my $client = $listening->accept) {
    my $line = <$client> // "";
    while (defined(my $more = <$client>)) { last if $more =~ /^\r?\n$/ }
    my ($status, $text) = ("200 OK", "ok");
    upload() if $line =~ m{^GET /upload };
    if ($line =~ m{^GET /uploads}) { 1 while upload(); pop @open }
    if ($line =~ m{^GET /list} && !eval { list(); 1 }) {
        warn $@;
        ($status, $text) = ("500 Failed", "failed");
    }
    print $client "HTTP/1.1 $status\r\nConnection: close\r\nContent-Length: " . length($text) . "\r\n\r\n$text";
    close $client;
}
