package group

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick/internal/partition"
)

// A log that was truncated below what was read of it stops its partition, which is named; the offsets that it
// has now mean other records.
func TestTruncationStops(t *testing.T) {
	r, k := alone(t), partition.Key{Topic: "in", ID: 1}
	p := r.opens(k)
	other := r.opens(partition.Key{Topic: "in", ID: 2})
	r.tell("test", func() {
		r.fetchError(k.Topic, k.ID, &kgo.ErrDataLoss{Topic: k.Topic, Partition: k.ID, ConsumedTo: 50, ResetTo: 40}, false)
	})
	if !p.Closed() || other.Closed() {
		t.Errorf("closed: %v, and the other one: %v", p.Closed(), other.Closed())
	}
	why := ""
	for _, s := range r.Status().Partitions {
		if s.Partition == k.ID {
			why = s.Stopped
		}
	}
	if !strings.Contains(why, "truncated below offset 50") {
		t.Errorf("it says %q", why)
	}
}
