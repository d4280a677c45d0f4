# A value that is there or not.  service.tcl PORT RATES
lassign $argv port rates
set value 2

proc ask {rates} {
    if {$rates eq "0"} return
    set sock [socket 127.0.0.1 $rates]
    set text [read $sock 1]
    close $sock
    if {$text ne "2"} {error "no rate"}
}

proc get {} {
    global value rates
    ask $rates
    return $value
}

proc accept {sock host port} {
    fconfigure $sock -translation crlf -buffering full
    fileevent $sock readable [list serve $sock]
}

proc serve {sock} {
    global value
    set path [lindex [split [gets $sock]] 1]
    while {[gets $sock line] > 0} {}
    set status "200 OK"
    set text "ok"
    if {$path eq "/unset"} {unset -nocomplain value}
    if {$path eq "/get" && [catch {get} text]} {
        puts stderr "cannot get: $text"
        set status "500 Failed"
        set text "failed"
    }
    puts -nonewline $sock "HTTP/1.1 $status\nConnection: close\nContent-Length: [string length $text]\n\n$text"
    close $sock
}

socket -server accept -myaddr 127.0.0.1 $port
vwait forever
