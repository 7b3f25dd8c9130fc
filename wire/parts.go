package wire

import (
	"runtime"
	"sync"
)

// partBytes is how many bytes a goroutine has to move to be worth starting: some tens of microseconds of work.
const partBytes = 256 << 10

// InParts has work done for parts of [0, n) that together are all of it: in one goroutine, or in several where so many bytes are
// moved that it pays. It returns when all is done.
func InParts(n int, bytes int64, work func(from, to int)) {
	parts := min(runtime.GOMAXPROCS(0), int(min(bytes/partBytes, 64)), n)
	if parts <= 1 {
		work(0, n)
		return
	}
	var all sync.WaitGroup
	for i := 1; i < parts; i++ {
		all.Go(func() { work(i*n/parts, (i+1)*n/parts) })
	}
	work(0, n/parts)
	all.Wait()
}
