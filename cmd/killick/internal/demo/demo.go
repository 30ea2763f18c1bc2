package demo

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/killick-io/killick/examples/orders/check"
	"github.com/killick-io/killick/examples/orders/topology"
	"github.com/killick-io/killick/testenv/embedded"
	"github.com/killick-io/killick/worker"
)

const (
	limit     = 55 * time.Second // of everything on the embedded broker
	longer    = 2 * time.Minute  // likewise on a Kafka, whose group takes its time to form
	every     = 5 * time.Millisecond
	tellEvery = time.Second
)

// run is one demo under way. One goroutine uses it.
type run struct {
	o       Options
	config  worker.Config // how to reach Kafka
	broker  string        // for people
	prefix  string
	dir     string
	k       *cluster
	obs     *observer
	started time.Time
	told    time.Time // when the last line about the progress was written
}

// Run runs the story and returns the verdict. It blocks until all is over and cleaned up: worker processes, topics,
// files. When ctx ends it does so soon.
func Run(ctx context.Context, o Options) (*Result, error) {
	o, config, err := o.check()
	if err != nil {
		return nil, err
	}
	r := &run{o: o, config: config, started: time.Now()}
	most := limit
	if o.Kafka != "" {
		most = longer
	}
	user := ctx
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("demo: not over after %v", most))
	defer cancel()

	if o.Kafka == "" {
		b, err := embedded.New()
		if err != nil {
			return nil, fmt.Errorf("demo: start the embedded broker: %w", err)
		}
		defer b.Close()
		r.broker = "the embedded broker"
		if r.config, err = load(b.Addrs()[0], nil); err != nil {
			return nil, fmt.Errorf("demo: %w", err)
		}
	} else {
		r.broker = "Kafka at " + o.Kafka
		r.prefix = "killick-demo-" + strings.ToLower(rand.Text()[:8])
	}
	opts, err := r.config.ClientOpts()
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	if r.k, err = connect(ctx, r.config.Bootstrap[0], newNames(r.prefix), opts); err != nil {
		return nil, err
	}
	defer r.k.close()
	if err := r.folder(); err != nil {
		return nil, err
	}
	res, err := r.story(ctx)
	if o.Kafka != "" {
		if cerr := r.k.clean(ctx); cerr != nil {
			r.say("not everything that begins with %s could be deleted: %v", r.prefix, cerr)
		}
	}
	return res, r.tidy(user, res, err)
}

// folder makes the place for logs, book and observations.
func (r *run) folder() (err error) {
	if r.dir = r.o.Keep; r.dir != "" {
		err = os.MkdirAll(r.dir, 0o755)
	} else {
		r.dir, err = os.MkdirTemp(r.o.temp, "killick-demo-")
	}
	if err != nil {
		return fmt.Errorf("demo: folder for logs: %w", err)
	}
	return nil
}

// keep writes v into the folder.
func (r *run) keep(name string, v any) error {
	b, err := json.MarshalIndent(v, "", " ")
	if err == nil {
		err = os.WriteFile(filepath.Join(r.dir, name), append(b, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("demo: keep %s: %w", name, err)
	}
	return nil
}

// tidy removes the folder if nobody needs it, and says where it is otherwise. user is the context of who called.
func (r *run) tidy(user context.Context, res *Result, err error) error {
	switch {
	case r.o.Keep != "":
		r.say("everything is kept in %s", r.dir)
	case user.Err() == nil && (err != nil || !res.OK):
		r.say("the workers' logs and all that was seen are in %s", r.dir)
	default:
		if rerr := os.RemoveAll(r.dir); rerr != nil {
			err = errors.Join(err, fmt.Errorf("demo: remove the temporary folder: %w", rerr))
		}
	}
	return err
}

// story is all of it, from the empty topics to the verdict.
func (r *run) story(ctx context.Context) (*Result, error) {
	rs, err := records(r.o.Records)
	if err != nil {
		return nil, err
	}
	if err := r.k.fill(ctx, rs); err != nil {
		return nil, err
	}
	r.say("%s: %d orders in %d partitions of topic %s", r.broker, len(rs), partitions, r.k.orders)
	r.obs = &observer{k: r.k, patience: r.o.patience}
	if _, err := r.obs.look(ctx); err != nil {
		return nil, err
	}
	res := &Result{Broker: r.broker}
	kill, err := r.first(ctx, res)
	if err != nil {
		return nil, err
	}
	if err := r.second(ctx, res); err != nil {
		return nil, err
	}
	h, err := r.history(ctx, kill, res)
	if err != nil {
		return nil, err
	}
	rep, err := check.Check(*h)
	if err != nil {
		return nil, fmt.Errorf("demo: %w", errors.Join(err, r.keep("history.json", h)))
	}
	res.Report, res.OK = rep, rep.OK
	res.Seconds = time.Since(r.started).Seconds()
	if r.o.Keep == "" && res.OK {
		return res, nil
	}
	return res, errors.Join(r.keep("history.json", h), r.keep("result.json", res))
}

// worker starts the n-th worker process.
func (r *run) worker(n int) (*child, error) {
	s := setup{kafka: r.config.Bootstrap[0], settings: r.o.Kafka != "", prefix: r.prefix, book: r.book(),
		delay: min(paying/time.Duration(r.o.Records), longest)}
	argv := append(append([]string{}, r.o.Worker...), s.args()...)
	c, err := start(argv, r.o.Environ, filepath.Join(r.dir, fmt.Sprintf("worker-%d.log", n)))
	if err != nil {
		return nil, err
	}
	r.say("worker %d started", c.pid())
	return c, nil
}

func (r *run) book() string { return filepath.Join(r.dir, "payments.jsonl") }

// first runs a worker up to the moment, kills it, and takes down what it has left.
func (r *run) first(ctx context.Context, res *Result) (*check.Kill, error) {
	c, err := r.worker(1)
	if err != nil {
		return nil, err
	}
	defer c.end()
	over, err := r.watch(ctx, c, func(now *round) (bool, error) { return moment(now, r.o.Records) })
	if err != nil {
		return nil, err
	}
	if over {
		return nil, c.failed("ended before it was killed")
	}
	killed, err := c.kill(ctx)
	if err != nil {
		return nil, err
	}
	if !killed {
		return nil, c.failed("ended by itself at the moment of the kill")
	}
	left, err := r.obs.settle(ctx)
	if err != nil {
		return nil, err
	}
	kill := &check.Kill{}
	for p := range int32(partitions) {
		kill.Samples = append(kill.Samples, left.sample(p))
	}
	kill.At = time.Now()
	res.Kill = Kill{PID: c.pid(), Through: left.effects(), Finished: left.covered(),
		SinceCommit: left.effects() - r.obs.before}
	r.say("worker %d killed with SIGKILL: %d of %d orders are through, commits and maps know %d of them",
		c.pid(), left.effects(), r.o.Records, left.covered())
	return kill, nil
}

// second runs a worker to the end of the input.
func (r *run) second(ctx context.Context, res *Result) error {
	c, err := r.worker(2)
	if err != nil {
		return err
	}
	defer c.end()
	if _, err := r.watch(ctx, c, func(*round) (bool, error) { return false, nil }); err != nil {
		return fmt.Errorf("%w\nthe log %s of worker %d ends with:\n%s", err, c.log, c.pid(), tail(c.log, 4096))
	}
	if c.err != nil {
		return c.failed("did not come to the end of the input")
	}
	res.Successor = c.pid()
	r.say("worker %d came to the end of the input and exited with 0", c.pid())
	return nil
}

// watch looks at offsets and outputs until the worker is over (true) or stop says so (false).
func (r *run) watch(ctx context.Context, c *child, stop func(*round) (bool, error)) (over bool, _ error) {
	for {
		now, err := r.obs.look(ctx)
		if err != nil {
			return false, err
		}
		if yes, err := stop(now); yes || err != nil {
			return false, err
		}
		r.tell(now)
		t := time.NewTimer(every)
		select {
		case <-t.C:
		case <-c.done:
			t.Stop()
			return true, nil
		case <-ctx.Done():
			t.Stop()
			return false, context.Cause(ctx)
		}
	}
}

// history collects what is there after the run.
func (r *run) history(ctx context.Context, kill *check.Kill, res *Result) (*check.History, error) {
	last, err := r.obs.look(ctx)
	if err != nil {
		return nil, err
	}
	for p := range int32(partitions) {
		r.obs.samples = append(r.obs.samples, last.sample(p))
	}
	h := &check.History{InputTopic: r.k.orders, OutputTopic: r.k.notifications, DeadLetterTopic: r.k.dead,
		Samples: r.obs.samples, Kills: []check.Kill{*kill}}
	// What may have run twice: the orders under way at the kill, and those that had ended since the last commit.
	h.MaxDuplicates = partitions*topology.Pending + int(res.Kill.SinceCommit)
	for topic, to := range map[string]*[]check.Record{r.k.orders: &h.Inputs, r.k.notifications: &h.Outputs, r.k.dead: &h.DeadLetters} {
		if *to, err = r.k.read(ctx, topic); err != nil {
			return nil, err
		}
	}
	if h.LogEnds, err = r.k.ends(ctx, r.k.orders); err != nil {
		return nil, err
	}
	f, err := os.Open(r.book())
	if err != nil {
		return nil, fmt.Errorf("demo: the gateway's book: %w", err)
	}
	defer f.Close()
	if h.Payments, err = check.ReadPayments(f); err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	return h, nil
}

// say writes a line about what goes on.
func (r *run) say(format string, args ...any) {
	fmt.Fprintf(r.o.Log, "%6.1fs  %s\n", time.Since(r.started).Seconds(), fmt.Sprintf(format, args...))
}

// tell says how far it is, now and then.
func (r *run) tell(now *round) {
	if time.Since(r.told) < tellEvery {
		return
	}
	r.told = time.Now()
	r.say("%d of %d orders are through, commits and maps know %d of them", now.effects(), r.o.Records, now.covered())
}
