package worker_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
	"github.com/killick-io/killick/worker"
)

// ledgerVar is the folder in which each child of TestMovesOfProcesses notes what it has executed.
const ledgerVar = "KILLICK_TEST_LEDGER"

// movesMain is a replica of TestMovesOfProcesses. It writes the id of each execution, 8 bytes, to a
// file of its own, and says at its end how long a partition that it kept went without one.
func movesMain(say func(string, ...any)) int {
	f, err := os.Create(filepath.Join(os.Getenv(ledgerVar), fmt.Sprint(os.Getpid())))
	if err != nil {
		say("%v", err)
		return 1
	}
	ledger := bufio.NewWriter(f)
	type seen struct {
		offset int64
		at     time.Time
	}
	var mu sync.Mutex
	last := map[int32]seen{}
	var gap time.Duration
	top := killick.New("t")
	top.Spout("in", spout.Kafka("in")).Pending(4000, 16<<20)
	top.Bolt("work", bolt.Async(2000, func(ctx context.Context, in *killick.Tuple, _ killick.Emitter) error {
		o, _ := in.Origin()
		now := time.Now()
		mu.Lock()
		// Executions of a partition begin about in order; a hole means that it was away meanwhile.
		if l, ok := last[o.Partition]; ok && o.Offset > l.offset && o.Offset <= l.offset+100 {
			gap = max(gap, now.Sub(l.at))
		}
		if l := last[o.Partition]; o.Offset > l.offset || now.Sub(l.at) > time.Second {
			last[o.Partition] = seen{o.Offset, now}
		}
		_, err := ledger.Write(in.Bytes()[:8])
		mu.Unlock()
		if err != nil {
			return err
		}
		select {
		case <-time.After(time.Duration(o.Offset*31%50) * time.Millisecond):
		case <-ctx.Done():
		}
		return ctx.Err()
	})).Shuffle("in")
	code := worker.Command(top, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	mu.Lock()
	defer mu.Unlock()
	if err := ledger.Flush(); err != nil {
		say("%v", err)
		return 1
	}
	say("gap %d", gap.Milliseconds())
	return code
}

// TestMovesOfProcesses (S1, one local stage): replicas come and go as processes under load. Every
// record is executed exactly once, what stays is not held up, no release meets its limit and no
// position goes back. KILLICK_FULL=1 makes it 20 rounds of 20 s with 20,000 records a second.
func TestMovesOfProcesses(t *testing.T) {
	const partitions = 8
	rounds, each, rate, most := 3, 2*time.Second, 2000, 10*time.Second
	if full() {
		rounds, each, rate, most = 20, 20*time.Second, 20_000, 500*time.Millisecond
	}
	dir := t.TempDir()
	t.Setenv(ledgerVar, dir)
	b := embedded.Start(t, embedded.Topic("in", partitions))
	s := newStory(t, b)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	fed := make(chan uint64, 1)
	go func() {
		var id uint64
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		begin := time.Now()
		for {
			due := uint64(time.Since(begin).Seconds() * float64(rate))
			var rs []*kgo.Record
			for ; id < due; id++ {
				rs = append(rs, &kgo.Record{Topic: "in", Partition: int32(id % partitions), Value: binary.BigEndian.AppendUint64(nil, id)})
			}
			if err := b.Produce(context.Background(), rs...); err != nil {
				t.Error(err)
			}
			select {
			case <-ctx.Done():
				fed <- id
				return
			case <-tick.C:
			}
		}
	}()
	var gap time.Duration
	var outs []*syncBuffer
	begin := func() *child {
		c := spawn(t, b, "moves", "--http=off", "--drain=20s")
		outs = append(outs, c.out)
		return c
	}
	end := func(c *child) {
		t.Helper()
		if err := c.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		for l := range c.lines {
			var ms int
			if _, err := fmt.Sscanf(l, "gap %d", &ms); err == nil {
				gap = max(gap, time.Duration(ms)*time.Millisecond)
			}
		}
		if code := c.code(t); code != 0 {
			t.Errorf("a replica ended with exit code %d:\n%s", code, c.out)
		}
	}
	members := func(n int) {
		t.Helper()
		wait, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		defer cancel()
		if _, err := b.Cluster().WaitGroupStable(wait, "g", n); err != nil {
			t.Fatal(err)
		}
	}
	one := begin()
	members(1)
	for range rounds {
		two, three := begin(), begin()
		members(3)
		<-time.After(each / 2)
		end(one)
		end(two)
		members(1)
		<-time.After(each / 2)
		one = three
	}
	cancel()
	n := <-fed
	s.drained("in")
	end(one)
	times := make([]uint8, n)
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for ; len(data) >= 8; data = data[8:] {
			times[binary.BigEndian.Uint64(data)]++
			total++
		}
	}
	wrong := 0
	for id, k := range times {
		if k != 1 {
			if wrong++; wrong < 10 {
				t.Errorf("record %d was executed %d times", id, k)
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d records were not executed once", wrong, n)
	}
	if gap > most {
		t.Errorf("a partition that stayed stood still for %v", gap)
	}
	for _, o := range outs {
		if strings.Contains(o.String(), "released with open records") {
			t.Errorf("a release has met its limit:\n%s", o)
		}
	}
	s.falls()
	t.Logf("%d executions of %d records by %d processes; longest time without one where a partition stayed: %v", total, n, len(files), gap)
}
