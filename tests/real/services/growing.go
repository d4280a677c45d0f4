// A Go service whose memory changes with each request: a map that grows, timers, goroutines that wait, count and allocate, and one that holds
// a thread of its own in a system call; and it tells a digest of all.
package main

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"sort"
	"sync"
	"syscall"
	"time"
)

var (
	lock     sync.Mutex
	held     = map[string][]byte{}
	requests int
	fired    int
	counted  uint64
	garbage  [][]byte
)

func grow() {
	requests++
	value := make([]byte, 64+requests*37%4096)
	for i := range value {
		value[i] = byte(requests)
	}
	held[fmt.Sprint("key ", requests)] = value
	if requests > 200 {
		delete(held, fmt.Sprint("key ", requests-200))
	}
	time.AfterFunc(time.Duration(20+requests%30)*time.Millisecond, func() {
		lock.Lock()
		defer lock.Unlock()
		fired++
	})
}

func digest() string {
	keys := []string{}
	for key := range held {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	sum := sha256.New()
	for _, key := range keys {
		sum.Write([]byte(key))
		sum.Write(held[key])
	}
	return fmt.Sprintf("%x", sum.Sum(nil))
}

// Its collector of garbage is at work again and again.
func allocate() {
	for {
		lock.Lock()
		garbage = append(garbage, make([]byte, 64<<10))
		if len(garbage) > 64 {
			garbage = nil
		}
		lock.Unlock()
		time.Sleep(5 * time.Millisecond)
	}
}

// Only a signal of the runtime's takes its processor away.
func count() {
	for {
		for i := 0; i < 20_000_000; i++ {
			counted++
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func holdThread() {
	var pipe [2]int
	runtime.LockOSThread()
	if syscall.Pipe(pipe[:]) == nil {
		syscall.Read(pipe[0], make([]byte, 1))
	}
}

func main() {
	for _, work := range []func(){allocate, count, holdThread} {
		go work()
	}
	http.HandleFunc("/", func(answer http.ResponseWriter, request *http.Request) {
		lock.Lock()
		defer lock.Unlock()
		if request.URL.Path != "/state" {
			grow()
		}
		fmt.Fprintf(answer, `{"requests": %d, "held": %d, "digest": "%s"}`, requests, len(held), digest())
	})
	panic(http.ListenAndServe("127.0.0.1:"+os.Args[1], nil))
}
