//go:build unix && killick_crash

package faults

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestCrashPoints kills a worker at each of killick's crash points in turn: the point is met, nothing is
// lost, no commit is early, and nothing runs again that the crash does not explain. It needs
// go test -tags killick_crash.
func TestCrashPoints(t *testing.T) {
	// How a worker comes to a point. All others are met by one worker that has records to process.
	joined := func(x *trial) { // another one joins, and partitions move to it
		x.produce(200)
		x.drained()
		must(x, x.ps.Process("w2").Start())
		for !x.crashed() {
			x.produce(40)
		}
	}
	ended := func(x *trial) {
		x.produce(200)
		x.drained()
		must(x, x.ps.Process("w1").Term())
	}
	ways := map[string]func(x *trial){
		"revoked": joined, "release-ended": joined, "release-committed": joined, "release-closed": joined,
		"drained": ended, "before-leave": ended, "left": ended,
		"lost": func(x *trial) { // frozen for longer than its session
			x.produce(200)
			x.drained()
			must(x, x.ps.Process("w1").Stop(), x.ps.Process("w2").Start())
			x.produce(200)
			x.drained()
			must(x, x.ps.Process("w1").Cont())
		},
	}
	for _, point := range CrashPoints() {
		t.Run(point, func(t *testing.T) {
			x := try(t, nil)
			w := x.ps.Process("w1")
			if point == "suspect-stored" { // careful mode begins when several lives have ended over one partition
				x.produce(400)
				for range 3 {
					must(t, w.Crash("executed:40:kill"), w.Start())
					x.died("executed")
				}
			}
			must(t, w.Crash(point+":1:kill"), w.Start())
			if way := ways[point]; way != nil {
				way(x)
			} else {
				x.produce(400)
			}
			x.died(point)
			must(t, w.Start())
			x.produce(200)
			x.drained()
			x.judge(2000)
		})
	}
}

// crashed reports whether the first worker has ended.
func (x *trial) crashed() bool {
	select {
	case <-time.After(20 * time.Millisecond):
	case <-x.ctx.Done():
		x.Fatalf("the point is not met; %v", x.ps.Err())
	}
	return !x.ps.Process("w1").Running()
}

// died waits until the first worker has met the point that was armed, and died of it.
func (x *trial) died(point string) {
	x.Helper()
	w := x.ps.Process("w1")
	e, err := w.Wait(x.ctx)
	if err != nil {
		x.Fatal(err)
	}
	if e.Signal != syscall.SIGKILL || !e.Armed || w.WaitOutput(x.ctx, "crash point "+point+" passage ") != nil {
		x.Fatalf("%+v; it has said\n%s", e, tail(e.Output, 10))
	}
	if e.Asked && !strings.Contains("drained before-leave left", point) {
		x.Errorf("it was asked to end: %+v", e)
	}
}
