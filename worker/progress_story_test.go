package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/embedded"
)

// What the progress line says of a worker that runs.
func TestProgressOfAWorker(t *testing.T) {
	tell(t, func(s *story) {
		var c tally
		r := s.start(counting(&c, spout.Kafka("in"), func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
			switch v := string(in.Bytes()); {
			case v == "later" && in.Attempt() == 1:
				return killick.RetryAfter(time.Minute, errTry)
			case v == "held":
				h := out.Hold()
				time.AfterFunc(25*time.Second, func() { h.Ack() })
			}
			return nil
		}))
		s.drained("in")
		s.produce("in", 0, "a", "later", "held", "b")
		s.pass(15 * time.Second)
		if got, want := r.ProgressText(), "t: ?/s, lag 3, pending 2, retries 1"; got != want {
			s.Errorf("%q, want %q", got, want)
		}
		if err := r.Pause(s.ctx(), "in"); err != nil {
			s.Fatal(err)
		}
		s.drained("in")
		if got, want := r.ProgressText(), "t: ?/s, lag 0, pending 0, retries 0, paused: in"; got != want {
			s.Errorf("%q, want %q", got, want)
		}
		r.end()
		if got := r.ProgressText(); !contains(got, "t (stopped): ") {
			s.Errorf("at the end: %q", got)
		}
	}, embedded.Topic("in", 1))
}
