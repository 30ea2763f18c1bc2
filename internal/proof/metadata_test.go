//go:build unix && killick_crash

package proof

import (
	"context"
	"errors"
	"hash/fnv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/worker"
)

// TestMetadataLimit: what the size of the completion map is made for. Kafka counts UTF-16 units, and
// takes 4096.
func TestMetadataLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafka.Use(t))
	in := w.topic("in", 1)
	for _, tt := range []struct {
		text string
		want error
	}{
		{strings.Repeat("x", 4096), nil},
		{strings.Repeat("x", 4097), kerr.OffsetMetadataTooLarge},
		{strings.Repeat("\u20ac", 4096), nil},
		{strings.Repeat("\U0001f600", 2048), nil},
		{strings.Repeat("\U0001f600", 2049), kerr.OffsetMetadataTooLarge},
	} {
		got, err := w.adm.CommitOffsets(w.ctx(), w.name, kadm.Offsets{in: {0: {Topic: in, At: 0, Metadata: tt.text}}})
		if err == nil {
			err = got.Error()
		}
		if !errors.Is(err, tt.want) {
			t.Errorf("%d units, %d bytes: %v, want %v", len(utf16.Encode([]rune(tt.text))), len(tt.text), err, tt.want)
		}
	}
}

// TestMapAtTheLimit: records end in the worst order for the map, every other one, over a window that
// is larger than a map can say. What Kafka accepts is as much as fits, and a restart runs only what
// has not ended and what did not fit.
func TestMapAtTheLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafka.Use(t))
	in := w.topic("in", 1)
	const n = 60_000
	w.write(in, 0, numbers(0, n)...)
	var mu sync.Mutex
	ran := map[string]int{}
	hold := make(chan struct{})
	top := func() *killick.Topology {
		top := killick.New("map")
		top.Spout("in", spout.Kafka(in)).Pending(n, 64<<20)
		top.Bolt("half", bolt.Async(n, func(ctx context.Context, in *killick.Tuple, _ killick.Emitter) error {
			o, _ := in.Origin()
			mu.Lock()
			ran[string(in.Bytes())]++
			mu.Unlock()
			// No run is like another, so that no way of writing runs down is short.
			h := fnv.New64a()
			h.Write(in.Bytes())
			if o.Offset == 0 || h.Sum64()>>8%3 == 0 {
				select {
				case <-hold:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		})).Shuffle("in")
		return top
	}
	count := func() (all, twice int) {
		mu.Lock()
		defer mu.Unlock()
		for _, k := range ran {
			all++
			if k > 1 {
				twice++
			}
		}
		return all, twice
	}
	r := w.start(top(), func(c *worker.Config) { c.Drain = time.Millisecond })
	w.until("all have begun", func() bool { all, _ := count(); return all == n })
	var longest string
	w.until("a map is committed that is full", func() bool {
		got, err := w.adm.FetchOffsetsForTopics(w.ctx(), w.name, in)
		if err != nil {
			t.Fatal(err)
		}
		o, _ := got.Lookup(in, 0)
		if o.Err != nil || o.At != 0 {
			t.Errorf("committed %d: %v; record 0 has not ended", o.At, o.Err)
		}
		longest = o.Metadata
		return len(utf16.Encode([]rune(longest))) > 3900
	})
	if units := len(utf16.Encode([]rune(longest))); units > 4096 {
		t.Errorf("%d units", units)
	}
	r.stop()
	if err := r.wait(); err == nil || worker.ExitCode(err) != 3 {
		t.Errorf("stopped with open records: exit code %d, %v", worker.ExitCode(err), err)
	}
	if strings.Contains(w.logs.text(), "OFFSET_METADATA_TOO_LARGE") {
		t.Error("a map was refused")
	}
	close(hold)
	r = w.start(top())
	w.drained(in)
	r.end()
	all, twice := count()
	if all != n {
		t.Errorf("%d of %d records ran", all, n)
	}
	// A third had to run again.
	t.Logf("a map of %d units; %d of %d ran twice, %d had to", len(longest), twice, n, n/3)
	if twice > n*2/3 || twice < n/4 {
		t.Errorf("%d of %d ran twice", twice, n)
	}
}
