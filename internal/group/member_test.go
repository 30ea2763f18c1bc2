package group

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick/internal/balance"
	"github.com/killick-io/killick/internal/kafka"
)

// An assignment whose user data are of another version says nothing of standing by. Where one member at a
// time may work, this one does not then: tasks would run twice. Elsewhere the partitions are all that
// counts. People are told once, and what to do.
func TestUnreadableAssignment(t *testing.T) {
	for _, single := range []bool{true, false} {
		r := alone(t)
		var log bytes.Buffer
		var active []bool
		r.cfg.Single, r.proto.facts.Single = single, single
		r.cfg.Group, r.cfg.Active = "orders", func(is bool) { active = append(active, is) }
		r.log = zerolog.New(&log)
		lease := &kafka.Lease{Member: "m-1", Generation: 3}
		come := func(userData string) {
			t.Helper()
			a := kmsg.NewConsumerMemberAssignment()
			a.UserData = []byte(userData)
			if _, err := r.proto.ParseSyncAssignment(a.AppendTo(nil)); err != nil {
				t.Fatal(err)
			}
			r.granted(r.cl, lease)
		}
		readable := func(standby string) string {
			g := balance.Grant{Standby: standby, Echo: r.proto.facts.Echo()}
			return string(g.Encode())
		}
		newer := strings.Replace(readable("one member at a time may work"), `"v":1`, `"v":2`, 1)
		come(newer)
		come(newer)
		come(readable(""))
		come("?")
		come(readable(""))
		want := []bool{!single, !single, true, !single, true}
		for i := range want {
			if i >= len(active) || active[i] != want[i] {
				t.Fatalf("single %v: active %v, want %v", single, active, want)
			}
		}
		text := log.String()
		if n := strings.Count(text, `"level":"warn"`); n != 2 { // one for each time that it began
			t.Errorf("single %v: %d warnings:\n%s", single, n, text)
		}
		for _, s := range []string{`"group":"orders"`, `"member":"m-1"`, "version 2, this worker knows 1", "the same version of killick"} {
			if !strings.Contains(text, s) {
				t.Errorf("single %v: the log lacks %q:\n%s", single, s, text)
			}
		}
		if standby := strings.Contains(text, "standing by"); standby != single {
			t.Errorf("single %v: standing by is said %v:\n%s", single, standby, text)
		}
	}
}

// A refusal that the poll loop hears of when the worker has joined already is old news.
func TestFullIsOver(t *testing.T) {
	r := alone(t)
	r.full(kerr.GroupMaxSizeReached)
	if why := r.Status().Outside; !strings.Contains(why, "group.max.size") {
		t.Errorf("outside: %q", why)
	}
	if _, err := r.proto.ParseSyncAssignment(nil); err != nil {
		t.Fatal(err)
	}
	r.assigned(t.Context(), r.cl, nil)
	r.proto.member = "m-1" // the client has none without a broker
	r.full(kerr.GroupMaxSizeReached)
	if why := r.Status().Outside; why != "" {
		t.Errorf("outside once it has joined: %q", why)
	}
	r.lost(t.Context(), r.cl, nil)
	r.full(kerr.GroupMaxSizeReached)
	if r.Status().Outside == "" {
		t.Error("it is not outside when it has lost its place again")
	}
}

// A leader that gives nothing at all says nothing of standing by, either.
func TestEmptyAssignment(t *testing.T) {
	r := alone(t)
	var active []bool
	r.cfg.Single, r.cfg.Active = true, func(is bool) { active = append(active, is) }
	if _, err := r.proto.ParseSyncAssignment(nil); err != nil {
		t.Fatal(err)
	}
	r.granted(r.cl, &kafka.Lease{Member: "m-1", Generation: 3})
	if why := r.Status().Standby; len(active) != 1 || active[0] || why == "" {
		t.Errorf("active %v, standing by: %q", active, why)
	}
}
