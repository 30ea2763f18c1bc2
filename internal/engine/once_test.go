package engine_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/ack"
	"github.com/killick-io/killick/internal/engine"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv/bubble"
)

// At most once a failed try is the last one, whatever the failure asks for, and its root is skipped.
func TestOnceIsOneTry(t *testing.T) {
	for name, fail := range map[string]func() error{
		"error":      func() error { return errNo },
		"later":      func() error { return killick.RetryAfter(1, errNo) },
		"fail tree":  func() error { return killick.FailTree(errNo) },
		"permanent":  func() error { return killick.Permanent(errNo) },
		"panic":      func() error { panic("oh") },
		"panic late": func() error { var none []int; return fmt.Errorf("%d", none[len(none)]) },
	} {
		for _, tasks := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s, %d tasks", name, tasks), func(t *testing.T) {
				top := topology().Guarantee(killick.AtMostOnce)
				top.Bolt("a", fn(pass)).Shuffle("in")
				top.Bolt("b", fn(func(in *killick.Tuple, _ killick.Emitter) error {
					if offset(in)%10 == 3 {
						return fail()
					}
					return nil
				})).Tasks(tasks).Shuffle("a")
				e := run(t, top, records("in", messages(100)...))
				e.wantEnds(90, 10)
				if n := e.total("b"); n != 100 {
					t.Errorf("%d executions", n)
				}
				for _, c := range e.dead("in") {
					if c.Policy != ack.Skip {
						t.Errorf("a root that is %v", c.Policy)
					}
				}
			})
		}
	}
}

// What cannot be decoded is dropped, too: there are no dead letters.
func TestOnceDecode(t *testing.T) {
	top := killick.New("test").Guarantee(killick.AtMostOnce)
	top.Spout("in", spout.KafkaSource{Topics: []string{"in"}, Codec: killick.JSON[int]()})
	top.Bolt("b", fn(null)).Shuffle("in")
	e := run(t, top, records("in", killick.Message{Bytes: []byte("1")}, killick.Message{Bytes: []byte("x")}))
	e.wantEnds(1, 1)
	if c := e.dead("in"); len(c) != 1 || c[0].Policy != ack.Skip {
		t.Errorf("dead: %+v", c)
	}
}

// once is a spout of n messages that notes what it is told of them.
type once struct {
	n    int
	note func(i int, err error)
}

func (o *once) Next(ctx) (m killick.Message, done func(error), err error) {
	if o.n == 0 {
		return m, nil, io.EOF
	}
	o.n--
	i := o.n
	m.Value = i
	return m, func(err error) { o.note(i, err) }, nil
}

// The source of a user's spout is told that a message is done before a bolt sees it, once.
func TestOnceSpout(t *testing.T) {
	var mu sync.Mutex
	told := map[int]int{}
	top := killick.New("spout").Guarantee(killick.AtMostOnce)
	top.Spout("in", spout.New(func() killick.Spout {
		return &once{200, func(i int, err error) {
			mu.Lock()
			defer mu.Unlock()
			if told[i]++; err != nil {
				t.Errorf("message %d: %v", i, err)
			}
		}}
	})).Pending(7, 1<<20)
	var ran []int
	top.Bolt("a", fn(func(in *killick.Tuple, _ killick.Emitter) error {
		mu.Lock()
		defer mu.Unlock()
		i := in.Value().(int)
		if told[i] != 1 {
			t.Errorf("message %d runs, its source was told %d times", i, told[i])
		}
		ran = append(ran, i)
		if i%9 == 0 {
			return errNo
		}
		return nil
	})).Shuffle("in")
	bubble.Test(t, func(t *testing.T) {
		spec, err := top.Spec()
		if err != nil {
			t.Fatal(err)
		}
		f := engine.NewSpoutFeed(&spec.Spouts[0], "spout", nil)
		f.Once()
		e, err := engine.New(config{Spec: spec, Feeds: map[string]engine.Feed{"in": f}})
		if err != nil {
			t.Fatal(err)
		}
		errs := make(chan error, 1)
		go func() { errs <- f.Run(t.Context()) }()
		if err := errors.Join(e.Run(t.Context()), <-errs); err != nil {
			t.Error(err)
		}
		f.Close()
	})
	slices.Sort(ran)
	if len(ran) != 200 || len(slices.Compact(ran)) != 200 || len(told) != 200 {
		t.Errorf("%d ran, %d were told", len(ran), len(told))
	}
}
