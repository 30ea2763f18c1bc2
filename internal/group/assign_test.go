package group

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick/internal/kafka"
	"github.com/killick-io/killick/internal/partition"
)

// A cluster that does not answer when a partition is assigned holds that one up. An error would end the
// client's session, and the open ones with it.
func TestAssignedWithoutAnAnswer(t *testing.T) {
	r := alone(t)
	cl, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:1"), kgo.RequestRetries(0))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	r.admin = kafka.NewAdmin(cl, "")
	old := r.opens(partition.Key{Topic: "in", ID: 0})
	given := map[string]map[int32]kgo.Offset{"in": {1: kgo.NewOffset().At(7)}}
	if _, err := r.adjust(t.Context(), given); err != nil {
		t.Error(err)
	}
	if old.Closed() {
		t.Error("the other partition is closed")
	}
	k := partition.Key{Topic: "in", ID: 1}
	r.mu.Lock()
	defer r.mu.Unlock()
	if why := r.stopped[k]; r.late[k] == nil || !strings.Contains(why, "asked again") || !strings.Contains(why, "127.0.0.1:1") {
		t.Errorf("it waits: %v; because %q", r.late[k] != nil, why)
	}
}
