package worker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"

	"github.com/killick-io/killick/internal/kafka"
)

// The user's own kgo options may tune anything, but not what the guarantees
// stand on. An option is opaque, so each is applied to a client configuration
// and what it changed is read back (kgo.Client.OptValues).

// refusal is an option of kgo that killick does not accept from users.
type refusal struct {
	opt any // the option's function
	why string
}

// refusals lists them.
func refusals() []refusal {
	const (
		commits = "offsets are committed by killick alone, when trees have ended"
		group   = "the topology is the group; use Config.Group and Config.Place"
		balance = "killick has its own balancer, which moves a partition only when its trees have ended"
		topics  = "topics come from the topology's spouts"
		start   = "use KafkaSource.Start and KafkaSource.Lost"
		calls   = "killick's own callback would be lost, and with it the fence against late commits"
		durable = "an output counts as written when all replicas have it, once and in order"
		txn     = "killick names and times its own transactions"
		share   = "share groups have neither order nor committed offsets"
		field   = "use Config."
	)
	return []refusal{
		{kgo.DisableAutoCommit, "it is off, and the clients that only write refuse the option"},
		{kgo.AutoCommitInterval, commits},
		{kgo.AutoCommitMarks, commits},
		{kgo.AutoCommitCallback, commits},
		{kgo.GreedyAutoCommit, commits},
		{kgo.ConsumerGroup, group},
		{kgo.InstanceID, group},
		{kgo.GroupProtocol, group},
		{kgo.ShareGroup, share},
		{kgo.ShareMaxRecords, share},
		{kgo.ShareMaxRecordsStrict, share},
		{kgo.ShareAckCallback, share},
		{kgo.Balancers, balance},
		{kgo.ServerSideBalancer, balance},
		{kgo.BlockRebalanceOnPoll, "it stops the partitions that a worker keeps for as long as a rebalance lasts"},
		{kgo.OnPartitionsAssigned, calls},
		{kgo.OnPartitionsRevoked, calls},
		{kgo.OnPartitionsLost, calls},
		{kgo.OnPartitionsCallbackBlocked, calls},
		{kgo.OnOffsetsFetched, calls},
		{kgo.AdjustFetchOffsetsFn, calls},
		{kgo.SessionTimeout, field + "Session"},
		{kgo.HeartbeatInterval, field + "Heartbeat"},
		{kgo.RebalanceTimeout, field + "RebalanceTimeout"},
		{kgo.SeedBrokers, field + "Bootstrap"},
		{kgo.FetchIsolationLevel, "aborted records must not become tuples; it is always ReadCommitted"},
		{kgo.ConsumeTopics, topics},
		{kgo.ConsumePartitions, topics},
		{kgo.ConsumeRegex, topics},
		{kgo.ConsumeExcludeTopics, topics},
		{kgo.ConsumeStartOffset, start},
		{kgo.ConsumeResetOffset, start},
		{kgo.RequiredAcks, durable},
		{kgo.DisableIdempotentWrite, durable},
		{kgo.AllowIdempotentProduceCancellation, durable},
		{kgo.MaxProduceRequestsInflightPerBroker, durable},
		{kgo.RecordDeliveryTimeout, "it counts from the record's own time, so that old records would never be written; " + field + "DeliveryTimeout"},
		{kgo.ManualFlushing, "nothing would be written until somebody flushes"},
		{kgo.DefaultProduceTopicAlways, "dead letters would go to that topic as well"},
		{kgo.TransactionalID, txn},
		{kgo.TransactionTimeout, txn},
		{kgo.AllowAutoTopicCreation, "a mistyped topic must be an error; killick creates its own topics"},
		{kgo.WithPools, "payload bytes stay valid for ever; a pool would use them again"},
		{kgo.WithContext, "its end would cut a drain short; give the context to Run"},
	}
}

// checkKafkaOpts refuses, by name, every option that breaks a guarantee.
func checkKafkaOpts(opts []kgo.Opt) error {
	_, err := probeKafka(opts)
	return err
}

// checkKafka adds what is wrong with the user's options, by themselves and
// together with the rest of c. c has its defaults.
func (c Config) checkKafka(wrong *mistakes) {
	user, err := probeKafka(c.Kafka)
	if bad, ok := errors.AsType[*configError](err); ok {
		*wrong = append(*wrong, bad.all...)
		return
	}
	if user.dials && c.usesTLS() {
		wrong.add("Config.Kafka", "brings a dialer of its own, which would go around kafka.security_protocol %s (%s); use one of them",
			c.SecurityProtocol, c.place("kafka.security_protocol"))
	}
	if user.sasl && c.usesSASL() {
		wrong.add("Config.Kafka", "brings kgo.SASL, and kafka.security_protocol is %s (%s); use one of them",
			c.SecurityProtocol, c.place("kafka.security_protocol"))
	}
	if len(*wrong) > 0 {
		return
	}
	// What is left is what only kgo knows, such as limits of its own. Group, topic and
	// topology are those of any worker.
	k, err := c.cluster("topology")
	if err == nil {
		start := kgo.NewOffset()
		reader := c.consumer()
		reader.Group, reader.Topics, reader.Start = "group", []string{"topic"}, &start
		err = kafka.Validate(c.clusterFor(k, false), reader)
		if err == nil {
			err = kafka.Validate(c.clusterFor(k, true), reader, c.producer(kafka.Outputs), c.producer(kafka.DeadLetters))
		}
	}
	if err != nil {
		wrong.add("Config.Kafka", "%v", err)
	}
}

// userOpts is what Config has to know of the user's options. How to connect is taken out of
// them: killick's own dialer works on top of the user's, and Reach has to connect, too.
type userOpts struct {
	dials bool // they bring a Dialer or DialTLSConfig of their own
	sasl  bool // they bring SASL

	dial      kafka.DialFunc
	tls       *tls.Config
	mechanism sasl.Mechanism
	rest      []kgo.Opt // all but those
}

// probeKafka looks at each option by itself. Its errors are joined; each is
// placed at its index.
func probeKafka(opts []kgo.Opt) (userOpts, error) {
	var u userOpts
	var wrong mistakes
	for i, o := range opts {
		place := fmt.Sprintf("Config.Kafka[%d]", i)
		if o == nil {
			wrong.add(place, "the option is nil")
			continue
		}
		with, without, err := probeOne(o)
		if err != nil {
			wrong.add(place, "%v", err)
			continue
		}
		for _, r := range refusals() {
			if !sameValues(with.values[optName(r.opt)], without.values[optName(r.opt)]) {
				wrong.add(place, "kgo.%s is refused: %s", optName(r.opt), r.why)
			}
		}
		switch {
		case len(with.sasl) > 1:
			wrong.add(place, "kgo.SASL has %d mechanisms; choose one", len(with.sasl))
		case len(with.sasl) == 1 && with.sasl[0] == nil:
			wrong.add(place, "kgo.SASL with a nil mechanism")
		case len(with.sasl) == 1:
			u.sasl, u.mechanism = true, with.sasl[0]
		case with.tls != nil:
			u.dials, u.tls = true, with.tls
		case setsDialer(o):
			u.dials, u.dial = true, with.dial
		case !slices.Equal(with.codecs, without.codecs):
			// A client of kgo rearranges the list of its codecs in place, in the option itself:
			// each worker that shares the option needs a list of its own.
			u.rest = append(u.rest, kgo.ProducerBatchCompression(slices.Clone(with.codecs)...))
		default:
			u.rest = append(u.rest, o)
		}
	}
	return u, wrong.err()
}

// probe is what a client would have been configured with.
type probe struct {
	values map[string][]any
	sasl   []sasl.Mechanism
	tls    *tls.Config
	dial   kafka.DialFunc
	codecs []kgo.CompressionCodec
}

// probeOne applies o on top of a base of options and returns what came out,
// with and without o. An option may be valid in some company only (callbacks in
// a group, fixed partitions not in one), so there are several
// bases; the first that o fits to counts. The error is kgo's own when it fits to
// none: the option's value is bad.
func probeOne(o kgo.Opt) (with, without probe, err error) {
	for _, base := range probeBases() {
		without, err = readOpts(base)
		if err != nil {
			return with, without, err
		}
		var bad error
		if with, bad = readOpts(append(base[:len(base):len(base)], o)); bad == nil {
			return with, without, nil
		}
		err = errors.Join(err, bad)
	}
	// The first base is the one that killick would use: its reason is the best.
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		err = joined.Unwrap()[0]
	}
	return with, without, err
}

// probeBases returns fresh bases. Their values are ones that nobody would pass,
// so that also an option that repeats kgo's default is seen.
func probeBases() [][]kgo.Opt {
	// A session this long fits any heartbeat that a user may pass, and the other
	// way round.
	const long, short = 7919 * time.Second, 77 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	common := []kgo.Opt{
		kgo.WithContext(ctx),
		kgo.SeedBrokers("killick.invalid:1"),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeStartOffset(kgo.NewOffset().At(7919)),
		kgo.ConsumeResetOffset(kgo.NewOffset().At(7919)),
		kgo.TransactionTimeout(long),
		kgo.SessionTimeout(long),
		kgo.HeartbeatInterval(short),
		kgo.RebalanceTimeout(long),
		kgo.GroupProtocol("killick-probe"),
		kgo.InstanceID("killick-probe"),
		kgo.Balancers(probeBalancer{kgo.RangeBalancer()}),
		kgo.AutoCommitInterval(long),
		kgo.ProducerBatchCompression(kgo.GzipCompression().WithLevel(7919)),
		kgo.WithCompressor(probeCompressor{}),
	}
	group := append(common[:len(common):len(common)],
		kgo.ConsumerGroup("killick-probe"),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) {}),
		kgo.OnPartitionsRevoked(func(context.Context, *kgo.Client, map[string][]int32) {}),
		kgo.OnPartitionsLost(func(context.Context, *kgo.Client, map[string][]int32) {}),
		kgo.OnPartitionsCallbackBlocked(func(context.Context, *kgo.Client) {}),
		kgo.OnOffsetsFetched(func(context.Context, *kgo.Client, *kmsg.OffsetFetchResponse) error { return nil }),
		kgo.AdjustFetchOffsetsFn(func(_ context.Context, m map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
			return m, nil
		}),
	)
	plus := func(base []kgo.Opt, more ...kgo.Opt) []kgo.Opt { return append(base[:len(base):len(base)], more...) }
	return [][]kgo.Opt{
		group,
		common,
		plus(common, kgo.ShareGroup("killick-probe")),
		plus(group, kgo.DisableIdempotentWrite()),
		plus(group, kgo.ConsumeRegex()),
		plus(group, kgo.DefaultProduceTopic("killick-probe")),
	}
}

// probeBalancer is a balancer of a type that no user has.
type probeBalancer struct{ kgo.GroupBalancer }

// probeCompressor keeps a probe from making kgo's own, which writes into the user's option.
type probeCompressor struct{ kgo.Compressor }

// errProbed stops NewClient once the options are known.
var errProbed = errors.New("worker: probed")

// readHook reads a client's options at the moment it is announced to hooks.
type readHook struct{ into *probe }

// OnNewClient is called by NewClient after the options were checked and before
// it starts a goroutine or calls a later hook. The panic is what leaves
// NewClient there: a finished client would join groups, dial, log, and announce
// itself to the user's hooks (metrics would register it). readOpts recovers it.
func (h readHook) OnNewClient(cl *kgo.Client) {
	h.into.values = make(map[string][]any)
	for _, r := range refusals() {
		h.into.values[optName(r.opt)] = cl.OptValues(r.opt)
	}
	h.into.sasl, _ = cl.OptValue(kgo.SASL).([]sasl.Mechanism)
	h.into.tls, _ = cl.OptValue(kgo.DialTLSConfig).(*tls.Config)
	h.into.codecs, _ = cl.OptValue(kgo.ProducerBatchCompression).([]kgo.CompressionCodec)
	h.into.dial, _ = cl.OptValue(kgo.Dialer).(func(context.Context, string, string) (net.Conn, error))
	panic(errProbed)
}

// readOpts returns what opts come to. Nothing is started and nothing connects.
func readOpts(opts []kgo.Opt) (p probe, err error) {
	defer func() {
		if r := recover(); r != nil && r != any(errProbed) {
			panic(r)
		}
	}()
	hook := kgo.WithHooks(readHook{&p})
	cl, err := kgo.NewClient(append([]kgo.Opt{hook}, opts...)...)
	if err != nil {
		return p, err
	}
	cl.Close() // our hook was dropped: only by a kgo that has changed
	return p, errors.New("worker: this version of franz-go does not announce clients to hooks")
}

// setsDialer says whether o is a kgo.Dialer. A client always has some dial
// function, so the value does not tell; but a Dialer and a TLS config exclude
// each other.
func setsDialer(o kgo.Opt) bool {
	plain := kgo.WithCompressor(probeCompressor{})
	return kgo.ValidateOpts(plain, o) == nil && kgo.ValidateOpts(plain, o, kgo.DialTLSConfig(new(tls.Config))) != nil
}

// optName is the name of an option's function.
func optName(opt any) string {
	name := runtime.FuncForPC(reflect.ValueOf(opt).Pointer()).Name()
	return name[strings.LastIndexByte(name, '.')+1:]
}

// sameValues compares what OptValues returned. Functions are equal if their
// code is, pointers if they are the same.
func sameValues(a, b []any) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !sameValue(reflect.ValueOf(a[i]), reflect.ValueOf(b[i])) {
			return false
		}
	}
	return true
}

// sameValue compares one value.
func sameValue(a, b reflect.Value) bool {
	if !a.IsValid() || !b.IsValid() {
		return a.IsValid() == b.IsValid()
	}
	if a.Type() != b.Type() {
		return false
	}
	if a.Kind() == reflect.Func || a.Kind() == reflect.Pointer { // a context is a pointer
		return a.Pointer() == b.Pointer()
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}
