package worker

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/killick-io/killick/internal/rules"
)

// echo is how soon after the first signal another one is still the same: a supervisor that signals
// both the process and its group (GNU timeout does) must not cut the drain short.
const echo = 200 * time.Millisecond

// signals handles the signals of the process while w runs. The first SIGTERM or SIGINT ends ctx. The
// second ends the process: what it was doing is not committed, so it runs again. For the others see
// [Main]. end takes the handlers away and waits for them.
func (p *program) signals(w *Worker) (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	stops, rest := make(chan os.Signal, 2), make(chan os.Signal, 8)
	signal.Notify(stops, syscall.SIGTERM, os.Interrupt)
	p.others(rest)
	var over atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		var first time.Time
		for s := range stops {
			if ctx.Err() != nil {
				if time.Since(first) < echo {
					continue
				}
				if !over.Load() && rules.SecondSignalEnds {
					fmt.Fprintf(p.stderr, "second %v: ending at once; open records run again after the next start\n", s)
					os.Exit(3)
				}
				return
			}
			first = time.Now()
			cancel()
		}
	})
	// A goroutine of its own: whatever takes long here must not hold up a stop.
	wg.Go(func() {
		for s := range rest {
			p.other(w, s)
		}
	})
	return ctx, func() {
		over.Store(true)
		signal.Stop(stops)
		signal.Stop(rest)
		close(stops)
		close(rest)
		wg.Wait()
		cancel()
	}
}
