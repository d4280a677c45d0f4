# One request: a count that is kept in a file.  service.sh RATES DATA
read -r method path rest
while read -r line && [ "$line" != "$(printf '\r')" ]; do :; done
file=$2/count

answer() {
    printf 'HTTP/1.1 %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s' "$1" "${#2}" "$2"
}

fails() {
    echo "service.sh: $1" >&2
    answer "500 Failed" "failed"
    exit
}

case $path in
/note)
    echo "many" >"$file"
    ;;
/count)
    if [ "$1" != 0 ]; then
        rate=$(perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new("127.0.0.1:$ARGV[0]") or exit 1; print scalar <$s>' "$1")
        [ "$rate" = 2 ] || fails "no rate"
    fi
    count=$(cat "$file" 2>/dev/null || echo 0)
    [ "$count" -ge 0 ] 2>/dev/null || fails "count is no number: $count"
    echo $((count + 1)) >"$file"
    ;;
esac
answer "200 OK" "ok"
