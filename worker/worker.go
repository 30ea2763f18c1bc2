package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/internal/core"
	"github.com/killick-io/killick/internal/crash"
	"github.com/killick-io/killick/internal/engine"
	"github.com/killick-io/killick/internal/group"
	"github.com/killick-io/killick/internal/kafka"
	"github.com/killick-io/killick/internal/outbox"
	"github.com/killick-io/killick/internal/partition"
)

// Worker runs a topology once.
type Worker struct {
	spec *killick.Spec
	cfg  Config
	log  zerolog.Logger
	gate *gate // of log; nil: it is the user's own
	ran  atomic.Bool

	cluster kafka.Cluster
	engine  *engine.Engine
	reader  *group.Reader // nil: no Kafka spout
	sources []*group.Source
	spouts  []*engine.SpoutFeed
	letters *outbox.DeadLetters // nil: no Kafka spout
	sayer   *sayer
	short   *shortage
	pauses  pauses

	adminClient *kgo.Client
	admin       *kafka.Admin
	clients     []*kgo.Client // producers
	dlqs        sync.Map      // source topic -> dlq

	lettersClient *kgo.Client // among clients

	state  atomic.Int32 // a state
	built  atomic.Bool  // everything above is set
	cancel atomic.Pointer[context.CancelFunc]
	// culprit is the task that was stuck for good.
	culprit atomic.Pointer[engine.Stuck]
	cause   atomic.Pointer[error] // what the run ended of, if it was not asked to
	http    atomic.Pointer[server]
	drain   atomic.Int64 // unix nanos of the begin of the stop; 0: none yet
}

// state is where a worker is in its life.
type state int32

const (
	stateNew state = iota
	stateStarting
	stateRunning
	stateDraining
	stateStopped
)

var stateNames = [...]string{"new", "starting", "running", "draining", "stopped"}

func (s state) String() string { return stateNames[s] }

// New makes a worker. It checks the topology and the configuration, and talks to nobody yet.
func New(t *killick.Topology, c Config) (*Worker, error) {
	spec, err := t.Spec()
	if err := errors.Join(err, c.Validate()); err != nil {
		return nil, err
	}
	c = c.withDefaults().withGroup(spec.Name)
	log, g := c.gated()
	w := &Worker{spec: spec, cfg: c, gate: g, log: log.With().Str("topology", spec.Name).Logger()}
	w.sayer = newSayer(w.log)
	w.short = &shortage{log: w.log}
	return w, nil
}

// Run runs t until its bounded spouts have come to their end, ctx is cancelled (a soft stop, see
// the package comment), or it cannot go on. nil is a clean end.
func Run(ctx context.Context, t *killick.Topology, c Config) error {
	w, err := New(t, c)
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// Run runs the topology. It can be called once.
func (w *Worker) Run(ctx context.Context) (err error) {
	if !w.ran.CompareAndSwap(false, true) {
		return errors.New("worker: Run was called twice")
	}
	w.state.Store(int32(stateStarting))
	defer w.state.Store(int32(stateStopped))
	for _, s := range w.cfg.warnings() {
		w.log.Warn().Msg(s)
	}
	srv, err := serve(w)
	if err != nil {
		return err
	}
	w.http.Store(srv)
	defer srv.close()
	defer w.closeClients()
	if err := w.start(ctx); err != nil {
		if ctx.Err() != nil {
			w.log.Info().Err(err).Msg("stopped before it had started")
			return nil
		}
		return w.short.explain(err)
	}
	err = w.run(ctx)
	w.log.Info().Err(err).Msg("stopped")
	return err
}

// start connects, builds everything and joins the group. After an error only clients are left.
func (w *Worker) start(ctx context.Context) error {
	if err := w.connect(ctx); err != nil {
		return err
	}
	if err := w.build(ctx); err != nil {
		return err
	}
	if w.reader != nil {
		sctx, cancel := context.WithTimeout(ctx, startTime)
		defer cancel()
		crash.At(crash.Starting)
		if err := w.reader.Start(sctx); err != nil {
			return err
		}
	}
	w.built.Store(true)
	return nil
}

// run is Run between start and the closing of the clients.
func (w *Worker) run(ctx context.Context) error {
	run, cancel := context.WithCancel(ctx)
	defer cancel()
	w.cancel.Store(&cancel)
	if w.cause.Load() != nil {
		cancel() // what was found out before cancel was there
	}
	// work outlives ctx: it carries what a soft stop still needs.
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	w.state.Store(int32(stateRunning)) // before anything can say that it drains
	var wg, spouts sync.WaitGroup
	if w.reader != nil {
		wg.Go(func() { w.reader.Run(work) })
		wg.Go(func() { w.letters.Run(work) })
	}
	for _, f := range w.spouts {
		spouts.Go(func() {
			if err := f.Run(work); err != nil {
				w.fatal(err)
			}
		})
	}
	wg.Go(func() {
		select {
		case <-run.Done():
		case <-work.Done():
			return
		}
		w.drain.Store(time.Now().UnixNano())
		w.state.CompareAndSwap(int32(stateRunning), int32(stateDraining))
		w.log.Info().Dur("limit", w.cfg.Drain).Msg("stopping: fetching ends, open trees may end")
		if w.reader != nil {
			w.reader.Leave()
		}
	})
	wg.Go(func() { w.watch(work, run) })
	w.log.Info().Str("group", w.cfg.Group).Msg("running")
	err := w.engine.Run(run)
	if err == nil && run.Err() == nil {
		err = w.others(run)
	}
	w.state.Store(int32(stateDraining))
	crash.At(crash.Drained)
	if cerr := w.finalCommit(work); err == nil {
		err = cerr
	}
	if cause := w.cause.Load(); cause != nil {
		err = *cause // the worker's own reason, rather than what the stop met
	}
	stopWork()
	wg.Wait()
	w.endSpouts(&spouts)
	if w.reader != nil {
		crash.At(crash.BeforeLeave)
		w.reader.Close()
		crash.At(crash.Left)
	}
	return err
}

// draining is how long the stop has been going on; 0: there is none.
func (w *Worker) draining() time.Duration {
	if n := w.drain.Load(); n > 0 {
		return time.Since(time.Unix(0, n))
	}
	return 0
}

// others waits, at the end of a bounded run, for partitions that were taken from this worker when
// their last roots had started and not ended: their next owner runs them.
func (w *Worker) others(ctx context.Context) error {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		left := 0
		for _, s := range w.sources {
			unfinished := s.Feed.Unfinished()
			left += len(unfinished)
			for _, p := range s.Feed.Partitions() {
				if end, ok := unfinished[partition.Key{Topic: p.Topic, ID: p.ID}]; ok && p.Status().Floor < end {
					return fmt.Errorf("worker: the group took %s away and gave it back when the run was about to end; "+
						"records before its end, %d, have not been processed: run again", p.Name(), end)
				}
			}
		}
		if left == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// endSpouts waits for the users' spouts, and gives up what they have emitted.
func (w *Worker) endSpouts(spouts *sync.WaitGroup) {
	done := make(chan struct{})
	go func() { spouts.Wait(); close(done) }()
	grace := time.NewTimer(spoutTime)
	defer grace.Stop()
	select {
	case <-done:
	case <-grace.C:
		// Go cannot end it. The process is about to.
		w.log.Error().Dur("after", spoutTime).Msg("a spout's Next has not returned, although its context has ended")
	}
	for _, f := range w.spouts {
		f.Close()
	}
}

// Limits of the steps around a run.
const (
	startTime  = 30 * time.Second // looking topics up, creating dead-letter topics
	commitTime = 10 * time.Second // the last commit; longer where sessions are
	flushTime  = 10 * time.Second // producers
	spoutTime  = 5 * time.Second  // a spout's Next, once its context has ended
)

// connect reaches the cluster, if the topology needs one.
func (w *Worker) connect(ctx context.Context) (err error) {
	kafkaSpouts, sinks := w.needs()
	if !kafkaSpouts && !sinks {
		return nil
	}
	if w.cluster, err = w.cfg.cluster(w.spec.Name); err != nil {
		return err
	}
	w.cluster.Dial = w.short.watch(w.cluster.Dial)
	if err := kafka.Reach(ctx, w.cluster); err != nil {
		return err
	}
	if w.adminClient, err = kafka.NewAdminClient(w.cluster); err != nil {
		return err
	}
	w.admin = kafka.NewAdmin(w.adminClient, w.cfg.user())
	return nil
}

func (w *Worker) needs() (kafkaSpouts, sinks bool) {
	for i := range w.spec.Spouts {
		kafkaSpouts = kafkaSpouts || w.spec.Spouts[i].Kafka()
	}
	for i := range w.spec.Bolts {
		sinks = sinks || w.spec.Bolts[i].Info.Sink != nil
	}
	return kafkaSpouts, sinks
}

// build makes feeds, outboxes, the reader and the engine.
func (w *Worker) build(ctx context.Context) error {
	kafkaSpouts, sinks := w.needs()
	intakes := map[string]intake{}
	ecfg := engine.Config{Spec: w.spec, Feeds: map[string]engine.Feed{}, Drain: w.cfg.Drain, Observe: w.sayer.event}
	if sinks {
		p := w.cfg.producer(kafka.Outputs)
		limits := &outbox.Limits{Most: w.cfg.BatchMaxBytes, Ask: w.batchLimit}
		if err := w.checkSinks(ctx, limits); err != nil {
			return err
		}
		k := w.cfg.clusterFor(w.cluster, true)
		k.Extra = append(k.Extra, kgo.ProducerBatchMaxBytesFn(limits.Of))
		cl, err := kafka.NewProducer(k, p)
		if err != nil {
			return err
		}
		w.clients = append(w.clients, cl)
		ecfg.Outbox = outbox.NewDirect(cl, limits, w.cfg.DeliveryTimeout)
	}
	if kafkaSpouts {
		p := w.cfg.producer(kafka.DeadLetters)
		cl, err := kafka.NewProducer(w.cfg.clusterFor(w.cluster, true), p)
		if err != nil {
			return err
		}
		w.clients = append(w.clients, cl)
		w.lettersClient = cl
		w.letters = outbox.NewDeadLetters(outbox.DeadLetterConfig{Client: cl, Topology: w.spec.Name, Group: w.cfg.Group,
			Known: w.dlqKnown, Partitions: w.dlqPartitions, Timeout: min(w.cfg.DeliveryTimeout, deadLetterTime), Failed: w.sayer.deadLetter})
	}
	for i := range w.spec.Spouts {
		s := &w.spec.Spouts[i]
		if !s.Kafka() {
			f := engine.NewSpoutFeed(s, w.spec.Name, w.sayer.event)
			if w.spec.Guarantee == killick.AtMostOnce {
				f.Once()
			}
			w.spouts = append(w.spouts, f)
			ecfg.Feeds[s.Name], intakes[s.Name] = f, f
			continue
		}
		k, ok := kafkaSource(s.Source)
		if !ok {
			return fmt.Errorf("worker: spout %q: a source with topics must be a spout.KafkaSource, not %T", s.Name, s.Source)
		}
		f := partition.NewFeed(s.Name, s.Pending, s.PendingBytes, partition.Hooks{Resume: w.resume, Commit: w.hasten, Dead: w.letters.Put,
			Convicted: func(d partition.Dead) {
				w.engine.TellEnd(s.Name, core.Origin{Topic: d.Topic(), Partition: d.Partition(), Offset: d.Offset()}, d.Cause)
			}})
		f.Keep(core.Order(s.Order))
		if w.spec.Guarantee == killick.AtMostOnce {
			f.CommitFirst()
		}
		w.sources = append(w.sources, &group.Source{Spec: s, Kafka: k, Feed: f})
		ecfg.Feeds[s.Name], intakes[s.Name] = f, f
	}
	w.pauses.built(intakes)
	newTopic := w.ensureDLQ
	if w.spec.Guarantee == killick.AtMostOnce {
		newTopic = nil // there are no dead letters
	}
	var err error
	if kafkaSpouts {
		w.active(false) // until the group says so
		w.reader, err = group.New(group.Config{Cluster: w.cfg.clusterFor(w.cluster, false), Group: w.cfg.Group, Topology: w.spec.Name,
			Consumer: w.cfg.consumer(), Sources: w.sources, CommitInterval: w.cfg.CommitInterval, Log: w.log,
			Fatal: w.fatal, NewTopic: newTopic, Drain: w.cfg.Drain, Patience: patience(w.spec), Trees: trees{w}, Shape: shape(w.spec), Single: single(w.spec), Active: w.active})
		if err != nil {
			return err
		}
	}
	w.engine, err = engine.New(ecfg)
	return err
}

func (w *Worker) resume(p *partition.Partition) { w.reader.Resume(p) }
func (w *Worker) hasten(*partition.Partition)   { w.reader.Hasten() }

// fatal ends the run. The first reason counts.
func (w *Worker) fatal(err error) {
	if errors.Is(err, kerr.FencedInstanceID) {
		err = fmt.Errorf("%w: %w", ErrFenced, err)
	}
	if !w.cause.CompareAndSwap(nil, &err) {
		return
	}
	w.log.Error().Err(err).Msg("the worker cannot go on")
	if c := w.cancel.Load(); c != nil {
		(*c)()
	}
}

// checkSinks refuses topics of sinks that are missing or may not be written to, while there is
// time to say so, and notes how large their batches may be.
func (w *Worker) checkSinks(ctx context.Context, limits *outbox.Limits) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	var errs []error
	for i := range w.spec.Bolts {
		k := w.spec.Bolts[i].Info.Sink
		if k == nil || k.Topic == "" {
			continue
		}
		_, err := w.admin.Outputs(ctx, k.Topic)
		if err == nil {
			err = w.admin.MayWrite(ctx, k.Topic)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("worker: sink %q: %w", w.spec.Bolts[i].Name, err))
			continue
		}
		if n := w.batchLimit(ctx, k.Topic); n > 0 {
			limits.Set(k.Topic, n)
		}
	}
	return errors.Join(errs...)
}

// batchLimit asks a topic for its largest batch; 0: it does not say, which not everybody may ask.
func (w *Worker) batchLimit(ctx context.Context, topic string) int32 {
	got, err := w.admin.MaxMessageBytes(ctx, topic)
	if err != nil {
		w.log.Debug().Str("topic", topic).Err(err).Msg("max.message.bytes could not be read")
	}
	return got[topic]
}

// dlq is what is known of a dead-letter topic.
type dlq struct {
	id         [16]byte
	partitions int
	at         time.Time // when it was looked up
}

// ensureDLQ makes sure that the dead letters of a topic have somewhere to go.
func (w *Worker) ensureDLQ(ctx context.Context, t kafka.Topic) error {
	name := outbox.Topic(t.Name, w.spec.Name)
	d, err := w.admin.EnsureTopic(ctx, kafka.TopicSpec{Name: name, Partitions: t.Partitions,
		Replication: w.cfg.Topics.Replication, Config: map[string]string{"retention.ms": "-1"}}, !w.cfg.Topics.NoCreate)
	if errors.Is(err, kafka.ErrFewPartitions) {
		// The source has grown. Dead letters of its new partitions share the old ones.
		w.log.Warn().Err(err).Msg("the dead-letter topic has fewer partitions than its source")
		all, terr := w.admin.Outputs(ctx, name)
		if terr != nil {
			return terr
		}
		d, err = all[name], nil
	}
	if err == nil {
		err = w.admin.MayWrite(ctx, name)
	}
	if err != nil {
		return fmt.Errorf("worker: the dead-letter topic of %q: %w", t.Name, err)
	}
	if old, ok := w.dlqs.Swap(t.Name, dlq{d.ID, d.Partitions, time.Now()}); ok && old.(dlq).id != d.ID {
		// A client never writes to a topic again that was deleted and made anew, unless it is
		// told to forget it.
		w.lettersClient.PurgeTopicsFromClient(name)
	}
	return nil
}

// dlqKnown is what is known of the dead-letter topic of a source.
func (w *Worker) dlqKnown(source string) (partitions int, ok bool) {
	if v, ok := w.dlqs.Load(source); ok {
		return v.(dlq).partitions, true
	}
	return 0, false
}

// dlqPartitions is the dead letters' question, from goroutines of theirs, one for each topic at most. After a
// failed write it looks again, for all letters of a topic once in a second.
func (w *Worker) dlqPartitions(ctx context.Context, source string, again bool) (int, error) {
	if v, ok := w.dlqs.Load(source); ok {
		if d := v.(dlq); !again || time.Since(d.at) < time.Second {
			return d.partitions, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, deadLetterTime)
	defer cancel()
	ts, err := w.admin.Topics(ctx, source)
	if err != nil {
		return 0, err
	}
	if err := w.ensureDLQ(ctx, ts[source]); err != nil {
		return 0, err
	}
	v, _ := w.dlqs.Load(source)
	return v.(dlq).partitions, nil
}

// finalCommit commits what has ended, until it is stored or commitTime has passed.
func (w *Worker) finalCommit(ctx context.Context) error {
	if w.reader == nil || !w.reader.Joined() {
		return nil
	}
	w.reader.Leaving()
	if s := w.culprit.Load(); s != nil && s.Origin.Topic != "" {
		w.reader.Accuse(s.Origin.Topic, s.Origin.Partition, s.Origin.Offset)
	}
	// A group that waits for a dead member takes no commit for as long as that one's session.
	ctx, cancel := context.WithTimeout(ctx, max(commitTime, w.cfg.Session+commitTime/2))
	defer cancel()
	var left int
	var last error
	for {
		n, err := w.reader.Commit(ctx)
		if n == 0 && err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil { // a cut-short try says less than the one before it
			left, last = n, err
		}
		wait := 100 * time.Millisecond
		if kafka.Refusal(err) == kafka.Fatal {
			wait = 0 // it will not be stored
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
			if wait > 0 {
				continue
			}
		}
		timer.Stop()
		return fmt.Errorf("%w: the last position of %d partitions was not stored: %w", ErrDrain, left, last)
	}
}

func (w *Worker) closeClients() {
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	for _, cl := range w.clients {
		_ = cl.Flush(ctx) // nothing waits any more after a clean end
		cl.Close()
	}
	if w.adminClient != nil {
		w.adminClient.Close()
	}
}
