package worker

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"go.uber.org/goleak"

	"github.com/killick-io/killick/internal/kafka"
)

// somePool is a pool of kgo.
type somePool struct{}

func (somePool) GetDecompressBytes([]byte, kgo.CompressionCodecType) []byte { return nil }
func (somePool) PutDecompressBytes([]byte)                                  {}

func TestKafkaOptsRefused(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	live, cancel := context.WithCancel(t.Context())
	defer cancel()
	assigned := func(context.Context, *kgo.Client, map[string][]int32) {}
	// By the name that the error must have. Also values that repeat kgo's own
	// default: they would override killick's.
	refused := map[string][]kgo.Opt{
		"DisableAutoCommit":                   {kgo.DisableAutoCommit()},
		"AutoCommitInterval":                  {kgo.AutoCommitInterval(time.Second), kgo.AutoCommitInterval(5 * time.Second)},
		"AutoCommitMarks":                     {kgo.AutoCommitMarks()},
		"GreedyAutoCommit":                    {kgo.GreedyAutoCommit()},
		"AutoCommitCallback":                  {kgo.AutoCommitCallback(func(*kgo.Client, *kmsg.OffsetCommitRequest, *kmsg.OffsetCommitResponse, error) {})},
		"ConsumerGroup":                       {kgo.ConsumerGroup("g")},
		"InstanceID":                          {kgo.InstanceID("i")},
		"GroupProtocol":                       {kgo.GroupProtocol("consumer")},
		"ShareGroup":                          {kgo.ShareGroup("g")},
		"ShareMaxRecords":                     {kgo.ShareMaxRecords(5)},
		"ShareMaxRecordsStrict":               {kgo.ShareMaxRecordsStrict()},
		"ShareAckCallback":                    {kgo.ShareAckCallback(func(*kgo.Client, kgo.ShareAckResults) {})},
		"Balancers":                           {kgo.Balancers(kgo.RangeBalancer()), kgo.Balancers(kgo.CooperativeStickyBalancer())},
		"ServerSideBalancer":                  {kgo.ServerSideBalancer()},
		"BlockRebalanceOnPoll":                {kgo.BlockRebalanceOnPoll()},
		"OnPartitionsAssigned":                {kgo.OnPartitionsAssigned(assigned), kgo.OnPartitionsAssigned(nil)},
		"OnPartitionsRevoked":                 {kgo.OnPartitionsRevoked(assigned), kgo.OnPartitionsRevoked(nil)},
		"OnPartitionsLost":                    {kgo.OnPartitionsLost(assigned), kgo.OnPartitionsLost(nil)},
		"OnPartitionsCallbackBlocked":         {kgo.OnPartitionsCallbackBlocked(func(context.Context, *kgo.Client) {})},
		"OnOffsetsFetched":                    {kgo.OnOffsetsFetched(nil)},
		"AdjustFetchOffsetsFn":                {kgo.AdjustFetchOffsetsFn(nil)},
		"SessionTimeout":                      {kgo.SessionTimeout(45 * time.Second), kgo.SessionTimeout(time.Second)},
		"HeartbeatInterval":                   {kgo.HeartbeatInterval(3 * time.Second), kgo.HeartbeatInterval(time.Minute)},
		"RebalanceTimeout":                    {kgo.RebalanceTimeout(time.Minute)},
		"SeedBrokers":                         {kgo.SeedBrokers("127.0.0.1")},
		"FetchIsolationLevel":                 {kgo.FetchIsolationLevel(kgo.ReadUncommitted())},
		"ConsumeTopics":                       {kgo.ConsumeTopics("t")},
		"ConsumePartitions":                   {kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset()}})},
		"ConsumeRegex":                        {kgo.ConsumeRegex()},
		"ConsumeExcludeTopics":                {kgo.ConsumeExcludeTopics("t")},
		"ConsumeStartOffset":                  {kgo.ConsumeStartOffset(kgo.NewOffset().AtStart())},
		"ConsumeResetOffset":                  {kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd())},
		"RequiredAcks":                        {kgo.RequiredAcks(kgo.LeaderAck()), kgo.RequiredAcks(kgo.NoAck())},
		"DisableIdempotentWrite":              {kgo.DisableIdempotentWrite()},
		"AllowIdempotentProduceCancellation":  {kgo.AllowIdempotentProduceCancellation()},
		"MaxProduceRequestsInflightPerBroker": {kgo.MaxProduceRequestsInflightPerBroker(5)},
		"ManualFlushing":                      {kgo.ManualFlushing()},
		"RecordDeliveryTimeout":               {kgo.RecordDeliveryTimeout(time.Minute)},
		"DefaultProduceTopicAlways":           {kgo.DefaultProduceTopicAlways()},
		"TransactionalID":                     {kgo.TransactionalID("t")},
		"TransactionTimeout":                  {kgo.TransactionTimeout(40 * time.Second)},
		"AllowAutoTopicCreation":              {kgo.AllowAutoTopicCreation()},
		"WithPools":                           {kgo.WithPools(somePool{})},
		"WithContext":                         {kgo.WithContext(live), kgo.WithContext(context.Background())},
	}
	for _, r := range refusals() {
		name := optName(r.opt)
		if len(refused[name]) == 0 {
			t.Errorf("no case for %s", name)
		}
		for i, o := range refused[name] {
			want := fmt.Sprintf("worker: invalid configuration: Config.Kafka[1]: kgo.%s is refused: %s", name, r.why)
			err := checkKafkaOpts([]kgo.Opt{kgo.ClientID("fine"), o})
			if err == nil || err.Error() != want {
				t.Errorf("%s, case %d: %v", name, i, err)
			}
		}
	}
	if len(refused) != len(refusals()) {
		t.Errorf("%d cases, %d refusals", len(refused), len(refusals()))
	}
}

// loudHook fails the test when a probe reaches the user's hooks.
type loudHook struct{ t *testing.T }

func (h loudHook) OnNewClient(*kgo.Client)    { h.t.Error("the user's hook saw a probe") }
func (h loudHook) OnClientClosed(*kgo.Client) { h.t.Error("the user's hook saw a probe close") }

func TestKafkaOptsAccepted(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	dial := func(context.Context, string, string) (net.Conn, error) {
		t.Error("a probe dialled")
		return nil, net.ErrClosed
	}
	opts := []kgo.Opt{
		kgo.ClientID("x"), kgo.FetchMaxBytes(1 << 20), kgo.ProducerLinger(0), kgo.RecordRetries(3), kgo.MaxBufferedRecords(10),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.KeepControlRecords(), kgo.AlwaysRetryEOF(), kgo.Rack("r"), kgo.DisableClientMetrics(), kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.WithLogger(kgo.BasicLogger(failWriter{t}, kgo.LogLevelDebug, nil)), kgo.WithHooks(loudHook{t}), kgo.Dialer(dial),
	}
	if err := checkKafkaOpts(opts); err != nil {
		t.Error(err)
	}
	if err := (Config{Kafka: opts}).Validate(); err != nil {
		t.Error(err)
	}
	for _, tt := range []struct {
		o                 kgo.Opt
		dials, sasl, rest bool
	}{
		{o: kgo.Dialer(dial), dials: true}, {o: kgo.SASL(plain.Auth{User: "u", Pass: "p"}.AsMechanism()), sasl: true}, {o: kgo.ClientID("x"), rest: true},
	} {
		got, err := probeKafka([]kgo.Opt{tt.o})
		if err != nil || got.dials != tt.dials || got.sasl != tt.sasl || (len(got.rest) == 1) != tt.rest ||
			(got.dial != nil) != tt.dials || (got.mechanism != nil) != tt.sasl {
			t.Errorf("got %+v, %v, want %+v", got, err, tt)
		}
	}
	for _, o := range []kgo.Opt{kgo.DialTLSConfig(&tls.Config{}), kgo.DialTLS()} {
		if got, err := probeKafka([]kgo.Opt{o}); err != nil || !got.dials || got.tls == nil {
			t.Errorf("a TLS option of the user's is not seen: %+v, %v", got, err)
		}
	}
}

// failWriter is a log that nobody may write to.
type failWriter struct{ t *testing.T }

func (w failWriter) Write(p []byte) (int, error) {
	w.t.Errorf("a probe logged: %s", p)
	return len(p), nil
}

// Workers of one process share a Config, and with it the options, also while they start: kgo writes
// into the list of codecs of the very option. The race detector judges.
func TestKafkaOptsAreShared(t *testing.T) {
	c := Config{Kafka: []kgo.Opt{kgo.ProducerBatchCompression(kgo.ZstdCompression(), kgo.ZstdCompression(), kgo.NoCompression()), kgo.DisableClientMetrics()}}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := c.Validate(); err != nil {
				t.Error(err)
			}
			k, err := c.withDefaults().cluster("orders")
			if err != nil {
				t.Error(err)
				return
			}
			cl, err := kafka.NewProducer(c.withDefaults().clusterFor(k, true), c.withDefaults().producer(kafka.Outputs))
			if err != nil {
				t.Error(err)
				return
			}
			defer cl.Close()
			codecs, _ := cl.OptValue(kgo.ProducerBatchCompression).([]kgo.CompressionCodec)
			if len(codecs) != 3 || codecs[0] != kgo.ZstdCompression() {
				t.Errorf("compression %v", codecs)
			}
		})
	}
	wg.Wait()
}

func TestKafkaOptsMistakes(t *testing.T) {
	err := checkKafkaOpts([]kgo.Opt{nil, kgo.MaxBufferedRecords(0), kgo.ConsumerGroup("g"), kgo.Balancers(), kgo.SASL(nil)})
	want := []string{
		"Config.Kafka[0]: the option is nil",
		"Config.Kafka[1]: max buffered records 0 is less than allowed 1",
		"Config.Kafka[2]: kgo.ConsumerGroup is refused: the topology is the group; use Config.Group and Config.Place",
		"Config.Kafka[3]: number of balancers 0 is less than allowed 1",
		"Config.Kafka[4]: kgo.SASL with a nil mechanism",
	}
	if d := cmp.Diff(want, lines(t, err)); d != "" {
		t.Error(d)
	}
	if _, err := (Config{Kafka: []kgo.Opt{nil}}).ClientOpts(); err == nil || !strings.Contains(err.Error(), "Config.Kafka[0]") {
		t.Errorf("ClientOpts with a nil option: %v", err)
	}
}
