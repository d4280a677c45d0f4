// A shelf whose last book can be taken twice; net/http, which recovers from a panic and hangs up.  service PORT RATES
package main

import (
	"net"
	"net/http"
	"os"
	"sync"
)

var (
	lock  sync.Mutex
	books = []string{"tea", "pots"}
)

func ask(rates string) {
	if rates == "0" {
		return
	}
	sock, err := net.Dial("tcp", "127.0.0.1:"+rates)
	if err != nil {
		panic(err)
	}
	defer sock.Close()
	text := make([]byte, 1)
	if _, err := sock.Read(text); err != nil || text[0] != '2' {
		panic("no rate")
	}
}

func last() string {
	return books[len(books)-1]
}

func main() {
	handle := func(path string, do func()) {
		http.HandleFunc(path, func(answer http.ResponseWriter, _ *http.Request) {
			lock.Lock()
			defer lock.Unlock()
			do()
			answer.Write([]byte("ok"))
		})
	}
	handle("/put", func() { books = append(books, "tea") })
	handle("/clear", func() { books = nil })
	handle("/last", func() {
		ask(os.Args[2])
		_ = last()
	})
	panic(http.ListenAndServe("127.0.0.1:"+os.Args[1], nil))
}
