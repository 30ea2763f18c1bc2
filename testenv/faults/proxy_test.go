package faults

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/killick-io/killick/testenv/embedded"
)

// dials notes where a client connects to.
type dials struct {
	mu    sync.Mutex
	addrs map[string]int
}

func (d *dials) opt() kgo.Opt {
	return kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
		d.mu.Lock()
		if d.addrs == nil {
			d.addrs = map[string]int{}
		}
		d.addrs[addr]++
		d.mu.Unlock()
		return new(net.Dialer).DialContext(ctx, network, addr)
	})
}

// only fails the test if the client has gone past the proxy.
func (d *dials) only(t *testing.T, p *Proxy, b *embedded.Broker) {
	t.Helper()
	var links []string
	for _, a := range b.Addrs() {
		l, err := p.Link(a)
		if err != nil {
			t.Fatal(err)
		}
		links = append(links, l.Addr())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for a, n := range d.addrs {
		if !slices.Contains(links, a) {
			t.Errorf("%d connections to %s, past the proxy at %v", n, a, links)
		}
	}
	if len(d.addrs) == 0 {
		t.Error("no connections")
	}
}

// Clients of several protocol versions find all brokers through the proxy, and never past it: by
// metadata, coordinators, and the new leaders in answers to Produce and Fetch.
func TestEverythingGoesThroughTheProxy(t *testing.T) {
	for name, opts := range map[string][]kgo.Opt{
		"newest": nil,
		"2.0":    {kgo.MaxVersions(kversion.V2_0_0())}, // before flexible headers
		"3.0":    {kgo.MaxVersions(kversion.V3_0_0())}, // FindCoordinator of several keys
	} {
		t.Run(name, func(t *testing.T) {
			const brokers = 3
			b := embedded.Start(t, embedded.Brokers(brokers), embedded.Topic("in", 12))
			p := StartProxy(t, b.Addrs()[0]) // the others are found
			ctx := limited(t)
			var d dials
			out := client(t, b, p, append([]kgo.Opt{d.opt(), kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)...)
			in := client(t, b, p, append([]kgo.Opt{d.opt(), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("in"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}, opts...)...)
			const rounds, each = 4, 12
			got := map[string]int{}
			for i := range rounds {
				var rs []*kgo.Record
				for part := range int32(each) {
					rs = append(rs, &kgo.Record{Topic: "in", Partition: part, Value: fmt.Appendf(nil, "%d/%d", i, part)})
				}
				if err := out.ProduceSync(ctx, rs...).FirstErr(); err != nil {
					t.Fatal(err)
				}
				for len(got) < each*(i+1) {
					fs := in.PollFetches(ctx)
					fs.EachError(func(_ string, _ int32, err error) {
						// The embedded broker's word for a leader that has moved just now; the reset reads again.
						var loss *kgo.ErrDataLoss
						if !errors.As(err, &loss) {
							t.Fatalf("%d records have come: %v", len(got), err)
						}
					})
					fs.EachRecord(func(r *kgo.Record) { got[string(r.Value)]++ })
				}
				if err := in.CommitUncommittedOffsets(ctx); err != nil {
					t.Fatal(err)
				}
				for part := range int32(each) { // Fetch and Produce say where the leader is now
					if err := b.Cluster().MoveTopicPartition("in", part, (part+int32(i))%brokers); err != nil {
						t.Fatal(err)
					}
				}
				b.Cluster().RehashCoordinators()
			}
			adm := kadm.NewClient(out)
			if md, err := adm.BrokerMetadata(ctx); err != nil || len(md.Brokers) != brokers {
				t.Errorf("brokers: %v, %v", md.Brokers, err)
			}
			d.only(t, p, b)
			for id := range int32(brokers) {
				if l, ok := p.Node(id); !ok || l.Broker() != b.Addrs()[id] || l.Node() != id {
					t.Errorf("node %d is %+v, %v", id, l, ok)
				}
			}
			if _, ok := p.Node(99); ok {
				t.Error("node 99")
			}
			noErrors(t, p)
		})
	}
}

// SASL passes: it is Kafka's own requests, except in the oldest form, which is refused by name.
func TestSASL(t *testing.T) {
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256"} {
		t.Run(mechanism, func(t *testing.T) {
			b, p := between(t, embedded.Topic("in", 1), embedded.SASL(mechanism, "me", "canary-pa55word"))
			var d dials
			cl := client(t, b, p, d.opt(), kgo.DefaultProduceTopic("in"))
			if err := cl.ProduceSync(limited(t), kgo.StringRecord("a")).FirstErr(); err != nil {
				t.Fatal(err)
			}
			d.only(t, p, b)
			noErrors(t, p)

			w := dial(t, p.Addrs()[0])
			req := kmsg.NewPtrSASLHandshakeRequest()
			req.Mechanism = mechanism
			w.send(req) // version 0
			w.ends()
			errs, _ := p.Errors()
			if len(errs) != 1 || !errors.Is(errs[0], ErrUnsupported) || !strings.Contains(errs[0].Error(), "version 1") {
				t.Errorf("errors: %v", errs)
			}
		})
	}
}

// TLS passes as bytes: connections, and what cuts, refuses and swallows them, work; addresses in answers
// stay those of the brokers.
func TestTLSIsBlind(t *testing.T) {
	cert, err := embedded.SelfSigned()
	if err != nil {
		t.Fatal(err)
	}
	b, p := between(t, embedded.Topic("in", 1), embedded.TLS(cert.Server, cert.Client))
	f := Inject(t, p, Rule{Count: -1})
	l := mustLink(t, p, b.Addrs()[0])
	over := func() *wire {
		w := dial(t, p.Addrs()[0])
		cfg := cert.Client.Clone()
		if cfg.ServerName == "" {
			cfg.ServerName = "127.0.0.1"
		}
		w.Conn = tls.Client(w.Conn, cfg)
		w.r.Reset(w.Conn)
		return w
	}
	w := over()
	req := kmsg.NewPtrMetadataRequest()
	req.SetVersion(9)
	resp := w.ask(req).(*kmsg.MetadataResponse)
	if got := fmt.Sprintf("%s:%d", resp.Brokers[0].Host, resp.Brokers[0].Port); got != b.Addrs()[0] {
		t.Errorf("the broker is at %s", got)
	}
	l.Cut()
	if err := w.end(); err == nil {
		t.Error("cut, and still there")
	}
	w = over()
	w.ask(req)
	if err := l.BlackHole(); err != nil {
		t.Fatal(err)
	}
	w.send(req)
	l.Cut()
	if err := w.end(); err == nil {
		t.Error("an answer out of a black hole")
	}
	if f.Hits() != 0 {
		t.Error("a rule has fitted what nobody can read")
	}
	noErrors(t, p)
}

// end reads once, for connections that may not close in order.
func (w *wire) end() error {
	_, err := w.r.ReadByte()
	return err
}

func mustLink(t *testing.T, p *Proxy, broker string) *Link {
	t.Helper()
	l, err := p.Link(broker)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// eachWay tells a story of all brokers, and of one that another one beside it does not notice.
func eachWay(t *testing.T, f func(t *testing.T, b *embedded.Broker, p *Proxy, cut, refuse func(), blackHole, heal func() error)) {
	t.Run("all", func(t *testing.T) {
		b, p := between(t, embedded.Topic("in", 1))
		f(t, b, p, p.Cut, p.Refuse, p.BlackHole, p.Heal)
	})
	t.Run("one broker", func(t *testing.T) {
		b := embedded.Start(t, embedded.Brokers(2), embedded.Topic("in", 1))
		own := b.Cluster().CoordinatorFor("g") // takes the commits
		p := StartProxy(t, b.Addrs()[own], b.Addrs()[1-own])
		l := mustLink(t, p, b.Addrs()[own])
		spared := dial(t, p.Addrs()[1])
		f(t, b, p, l.Cut, l.Refuse, l.BlackHole, l.Heal)
		spared.ask(versions())
	})
}

func TestCut(t *testing.T) {
	eachWay(t, func(t *testing.T, b *embedded.Broker, p *Proxy, cut, _ func(), _, _ func() error) {
		one, two := dial(t, p.Addrs()[0]), dial(t, p.Addrs()[0])
		one.ask(versions())
		two.ask(versions())
		cut()
		one.ends()
		two.ends()
		dial(t, p.Addrs()[0]).ask(versions())
		noErrors(t, p)
	})
}

func TestRefuse(t *testing.T) {
	eachWay(t, func(t *testing.T, b *embedded.Broker, p *Proxy, _, refuse func(), _, heal func() error) {
		addr := p.Addrs()[0]
		before := dial(t, addr)
		before.ask(versions())
		refuse()
		refuse()
		if c, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial: %v", err)
			if err == nil {
				c.Close()
			}
		}
		before.ask(versions()) // it stays
		if err := heal(); err != nil {
			t.Fatal(err)
		}
		dial(t, addr).ask(versions())
		before.ask(versions())
		noErrors(t, p)
	})
}

func TestBlackHole(t *testing.T) {
	eachWay(t, func(t *testing.T, b *embedded.Broker, p *Proxy, cut, refuse func(), blackHole, heal func() error) {
		addr := p.Addrs()[0]
		old := dial(t, addr)
		old.ask(versions())
		refuse() // from there, too
		if err := blackHole(); err != nil {
			t.Fatal(err)
		}
		n := p.Connections()
		fresh := dial(t, addr)
		for ctx := limited(t); p.Connections() == n; { // until it is in the hole
			if ctx.Err() != nil {
				t.Fatal("a black hole does not accept")
			}
			runtime.Gosched()
		}
		old.send(commit("in", at))
		fresh.send(commit("in", at))
		if err := heal(); err != nil {
			t.Fatal(err)
		}
		old.send(commit("in", at)) // what was in it does not come out
		fresh.send(commit("in", at))
		dial(t, addr).ask(commit("in", 1000))
		waitSeen(t, b, 1000, 1)
		cut()
		if n := old.ends() + fresh.ends(); n > 0 {
			t.Errorf("%d bytes out of a black hole", n)
		}
		if seen(b, at) != 0 {
			t.Error("a request has come out of a black hole")
		}
		noErrors(t, p)
	})
}

// What is held is lost when its connection becomes a black hole.
func TestBlackHoleSwallowsWhatIsHeld(t *testing.T) {
	for _, do := range []Action{HoldRequest, HoldAnswer, DuplicateLater} {
		t.Run(do.String(), func(t *testing.T) {
			b, p, f, w := inject(t, do)
			w.send(commit("in", at))
			wait(t, f, 1)
			if do != HoldRequest {
				waitSeen(t, b, at, 1)
			}
			if do == DuplicateLater {
				w.answer(commit("in", at), 1)
			}
			if err := p.BlackHole(); err != nil {
				t.Fatal(err)
			}
			f.Release()
			if err := p.Heal(); err != nil {
				t.Fatal(err)
			}
			other(t, b, p)
			p.Cut()
			if n := w.ends(); n > 0 {
				t.Errorf("%d bytes", n)
			}
			if n := seen(b, at); do == HoldRequest && n != 0 || do == DuplicateLater && n != 1 {
				t.Errorf("the broker has got it %d times", n)
			}
		})
	}
}

// A link that appears while all refuse, refuses, and heals with the others.
func TestNewLinkIsAsTheOthers(t *testing.T) {
	b := embedded.Start(t, embedded.Brokers(2))
	p := StartProxy(t, b.Addrs()[0])
	p.Refuse()
	l := mustLink(t, p, b.Addrs()[1])
	if _, err := net.Dial("tcp", l.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial: %v", err)
	}
	if err := p.Heal(); err != nil {
		t.Fatal(err)
	}
	dial(t, l.Addr()).ask(versions())
	if l != mustLink(t, p, strings.Replace(b.Addrs()[1], "127.0.0.1", "localhost", 1)) {
		t.Error("localhost is another broker")
	}
}

// A broker that is away for a while, and comes back on the same port: while it refuses connections, so
// does the proxy, from the moment on at which its clients have lost theirs.
func TestBrokerRestarts(t *testing.T) {
	b, p := between(t, embedded.Topic("in", 1))
	addr := p.Addrs()[0]
	cl := client(t, b, p, kgo.DefaultProduceTopic("in"))
	for i := range 5 {
		idle, busy := dial(t, addr), dial(t, addr)
		idle.ask(versions())
		busy.ask(versions())
		b.Down()
		idle.ends()
		refused := func() {
			t.Helper()
			if c, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("dial: %v", err)
				if err == nil {
					c.Close()
				}
			}
		}
		refused()
		if i == 0 { // Heal is about what was asked for
			must(t, p.Heal())
			refused()
			p.Refuse()
			must(t, p.BlackHole())
			dial(t, addr).send(versions()) // what does not get there is lost, be it there or not
			must(t, p.Heal())
			refused()
		}
		must(t, b.Up())
		for ctx := limited(t); ; runtime.Gosched() {
			c, err := net.Dial("tcp", addr)
			if err == nil {
				c.Close()
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("it does not come back: %v", err)
			}
		}
		dial(t, addr).ask(versions())
		must(t, cl.ProduceSync(limited(t), kgo.StringRecord(fmt.Sprint(i))).FirstErr())
	}
	if errs, _ := p.Errors(); len(errs) > 0 {
		for _, err := range errs { // of connections that were under way
			if !errors.Is(err, ErrUnreachable) {
				t.Errorf("%v", err)
			}
		}
	}
}

// One that finds the broker away is reset, not ended in order: clients would take it for one that speaks
// another protocol.
func TestUnreachable(t *testing.T) {
	b, p := between(t)
	b.Down()
	c, err := net.Dial("tcp", p.Addrs()[0]) // nobody has noticed so far
	if err == nil {
		_, err = c.Read(make([]byte, 1))
		c.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) { // of the read, or already of the dial
		t.Errorf("%v", err)
	}
	if _, err := net.Dial("tcp", p.Addrs()[0]); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial: %v", err)
	}
	errs, _ := p.Errors()
	var ce *ConnError
	if len(errs) != 1 || !errors.Is(errs[0], ErrUnreachable) || !errors.As(errs[0], &ce) || ce.Broker != b.Addrs()[0] || ce.Connection != 1 || ce.Client == "" {
		t.Errorf("errors: %v", errs)
	}
}

func TestWrongConfig(t *testing.T) {
	for _, tt := range []struct {
		cfg  ProxyConfig
		want []string
	}{
		{ProxyConfig{}, []string{"Brokers is empty"}},
		{ProxyConfig{Brokers: []string{"x", "127.0.0.1:0", "127.0.0.1:65536", ":9092"}}, []string{`"x"`, `"127.0.0.1:0"`, `"127.0.0.1:65536"`, `":9092"`}},
		{ProxyConfig{Brokers: []string{"h:1"}, MaxFrame: -1, MaxErrors: -1}, []string{"MaxFrame is -1", "MaxErrors is -1"}},
	} {
		p, err := NewProxy(tt.cfg)
		if err == nil {
			p.Close()
			t.Fatalf("%+v is accepted", tt.cfg)
		}
		for _, w := range tt.want {
			if !strings.Contains(err.Error(), w) || !strings.HasPrefix(err.Error(), "faults: ") {
				t.Errorf("%+v: %v has no %q", tt.cfg, err, w)
			}
		}
	}
}

func TestClosed(t *testing.T) {
	b, p := between(t)
	l := mustLink(t, p, b.Addrs()[0])
	w := dial(t, l.Addr())
	w.ask(versions())
	p.Close()
	p.Close()
	w.ends()
	if err := p.Heal(); err != ErrClosed {
		t.Errorf("Heal: %v", err)
	}
	if err := l.BlackHole(); err != ErrClosed {
		t.Errorf("BlackHole: %v", err)
	}
	p.Refuse()
	p.Cut()
	l.Cut()
	if _, err := p.Link("127.0.0.1:9"); err != ErrClosed {
		t.Errorf("Link: %v", err)
	}
	if _, err := net.Dial("tcp", l.Addr()); err == nil {
		t.Error("it listens")
	}
}

// Errors are bounded, and what is forgotten is counted.
func TestErrorsAreBounded(t *testing.T) {
	b := embedded.Start(t)
	p, err := NewProxy(ProxyConfig{Brokers: b.Addrs(), MaxErrors: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for i := range 25 {
		p.report(fmt.Errorf("%d", i))
	}
	errs, n := p.Errors()
	if len(errs) > 10 || len(errs)+n != 25 || errs[len(errs)-1].Error() != "24" {
		t.Errorf("%d errors, %d forgotten", len(errs), n)
	}
}

// A client whose answers do not come is not read for ever: memory is bounded.
func TestUnansweredRequestsAreBounded(t *testing.T) {
	b, p := between(t, embedded.Topic("in", 1))
	f := Inject(t, p, Rule{Do: HoldAnswer, Keys: []kmsg.Key{kmsg.ApiVersions}})
	count := Inject(t, p, Rule{Connection: 1, Count: -1})
	w := dial(t, p.Addrs()[0])
	const n = 3 * maxCalls
	sent := make(chan error, 1)
	go func() {
		var all []byte
		for i := range int32(n) {
			all = append(all, w.f.AppendRequest(nil, versions(), i+1)...)
		}
		_, err := w.Write(all)
		sent <- err
	}()
	wait(t, f, 1)
	// The answer to one is held, maxCalls wait behind it, and one has no room.
	const most = 1 + maxCalls + 1
	wait(t, count, most)
	other(t, b, p)
	if got := count.Hits(); got != most {
		t.Errorf("%d requests were read", got)
	}
	f.Release()
	for i := range int32(n) {
		w.answer(versions(), i+1)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	noErrors(t, p)
}
