package worker

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// echo is how soon after the first signal another one is still the same: a supervisor that signals
// both the process and its group (GNU timeout does) must not cut the drain short.
const echo = 200 * time.Millisecond

// signals returns a context that the first SIGTERM or SIGINT ends. The second ends the process:
// what it was doing is not committed, so it runs again.
func signals(stderr io.Writer) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, syscall.SIGTERM, os.Interrupt)
	done := make(chan struct{})
	var over atomic.Bool
	go func() {
		defer close(done)
		var first time.Time
		for s := range ch {
			if ctx.Err() != nil {
				if time.Since(first) < echo {
					continue
				}
				if !over.Load() {
					fmt.Fprintf(stderr, "second %v: ending at once; open records run again after the next start\n", s)
					os.Exit(3)
				}
				return
			}
			first = time.Now()
			cancel()
		}
	}()
	return ctx, func() {
		over.Store(true)
		signal.Stop(ch)
		close(ch)
		<-done
		cancel()
	}
}
