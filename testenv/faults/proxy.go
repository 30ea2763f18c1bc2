package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrClosed is returned by methods of a Proxy that has been closed.
var ErrClosed = errors.New("faults: the proxy is closed")

// TB is the part of testing.TB that this package needs. It is an interface of its own so that programs
// which use NewProxy do not link package testing.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Logf(format string, args ...any)
	Failed() bool
}

// loopback is where everything here listens.
const loopback = "127.0.0.1"

// ProxyConfig says what a proxy stands before.
type ProxyConfig struct {
	// Brokers are addresses of brokers, "127.0.0.1:9092": at least one. The others of the cluster are
	// found in its answers, as clients find them.
	Brokers []string
	// MaxFrame is the length of the largest request and answer, in bytes. Memory is taken as they come
	// in, not for what they announce. Default: 128 MiB.
	MaxFrame int
	// Events takes the commits of offsets that pass, and what rules do. It stays the caller's, who closes
	// it after the proxy. Default: none.
	Events *Log
	// MaxErrors is how many errors are remembered; beyond it the oldest are forgotten. Default: 1000.
	MaxErrors int
}

func (c ProxyConfig) withDefaults() ProxyConfig {
	if c.MaxFrame == 0 {
		c.MaxFrame = 128 << 20
	}
	if c.MaxErrors == 0 {
		c.MaxErrors = 1000
	}
	return c
}

func (c *ProxyConfig) validate() error {
	var errs []error
	if len(c.Brokers) == 0 {
		errs = append(errs, errors.New("faults: ProxyConfig.Brokers is empty; name at least one broker"))
	}
	for _, b := range c.Brokers {
		if _, _, err := splitAddress(b); err != nil {
			errs = append(errs, fmt.Errorf("faults: ProxyConfig.Brokers: %w", err))
		}
	}
	if c.MaxFrame < leastRequest {
		errs = append(errs, fmt.Errorf("faults: ProxyConfig.MaxFrame is %d; no request is shorter than %d bytes", c.MaxFrame, leastRequest))
	}
	if c.MaxErrors < 1 {
		errs = append(errs, fmt.Errorf("faults: ProxyConfig.MaxErrors is %d; at least 1 is needed", c.MaxErrors))
	}
	return errors.Join(errs...)
}

// Proxy stands between clients and the brokers of a cluster. Its methods may be called from any
// goroutine.
//
// Goroutines: one for each link, in Accept, which ends when the link refuses and with Close, or one that
// looks for the broker each 20 ms while that refuses, which ends when it is back and with Close; for each
// connection one that reads the client and one that reads the broker, which end with the connection; one
// for each copy that DuplicateLater keeps, which ends when the copy was sent and with the connection.
// Close ends all and waits for them.
//
// Memory: a frame in each direction of a connection, at most MaxFrame each, and twice that while one is
// looked into; 1,024 unanswered requests of a connection, beyond which its client is not read.
type Proxy struct {
	cfg    ProxyConfig
	seeds  []*Link
	topics topics
	faults atomic.Pointer[[]*Fault] // replaced as a whole, under mu
	ctx    context.Context          // ends with Close; for dials
	cancel context.CancelFunc
	done   <-chan struct{} // of ctx
	all    sync.WaitGroup  // of goroutines; Add under mu, and not once closed is set

	mu        sync.Mutex // taken before that of a link
	links     map[string]*Link
	mode      mode // of links to come
	conns     map[*conn]struct{}
	accepted  int // connections so far
	errs      []error
	forgotten int
	closed    bool
}

// maxLinks bounds the brokers of a cluster: an answer with more is not believed.
const maxLinks = 1024

// NewProxy starts a proxy, which runs until Close. The error joins all that is wrong with the
// configuration. Brokers need not be there yet.
func NewProxy(c ProxyConfig) (*Proxy, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	p := &Proxy{cfg: c, links: map[string]*Link{}, conns: map[*conn]struct{}{}}
	p.faults.Store(new([]*Fault))
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.done = p.ctx.Done()
	for _, b := range c.Brokers {
		host, port, _ := splitAddress(b)
		l, err := p.linkTo(host, port)
		if err != nil {
			p.Close()
			return nil, err
		}
		if !slices.Contains(p.seeds, l) {
			p.seeds = append(p.seeds, l)
		}
	}
	return p, nil
}

// StartProxy runs a proxy before the brokers until the end of the test, and fails the test if it
// cannot. Clients must be closed before that: register them with t.Cleanup after it.
func StartProxy(t TB, brokers ...string) *Proxy {
	t.Helper()
	p, err := NewProxy(ProxyConfig{Brokers: brokers})
	if err != nil {
		t.Fatalf("%v", err)
		return nil
	}
	t.Cleanup(p.Close)
	return p
}

// Close ends all connections, drops what is held, and waits for the goroutines. Closing twice does
// nothing.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	links := p.linksLocked()
	conns := p.connsLocked()
	p.mu.Unlock()
	p.cancel()
	for _, l := range links {
		l.close()
	}
	cut(conns)
	p.all.Wait()
}

// Addrs are the addresses that clients use as seeds: one for each of ProxyConfig.Brokers. They are fixed
// for the life of the proxy.
func (p *Proxy) Addrs() []string {
	var out []string
	for _, l := range p.seeds {
		out = append(out, l.Addr())
	}
	return out
}

// Connections is how many connections the proxy has accepted so far.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Errors are the faults that nobody injected, as *ConnError, in order: what was wrong with a connection
// before it was closed. Of the oldest only the number is left where there are more than
// ProxyConfig.MaxErrors.
func (p *Proxy) Errors() (errs []error, forgotten int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.errs), p.forgotten
}

func (p *Proxy) report(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.errs) >= p.cfg.MaxErrors {
		n := 1 + p.cfg.MaxErrors/10 // a tenth at a time: the copying does not show
		p.errs = slices.Delete(p.errs, 0, min(n, len(p.errs)))
		p.forgotten += n
	}
	p.errs = append(p.errs, err)
}

// Link is the way to the broker at an address, "127.0.0.1:9092": made now if no client has needed it
// yet.
func (p *Proxy) Link(broker string) (*Link, error) {
	host, port, err := splitAddress(broker)
	if err != nil {
		return nil, fmt.Errorf("faults: Link: %w", err)
	}
	return p.linkTo(host, port)
}

// Node is the way to the broker with the id, if an answer has named it. Ids and addresses are as in the
// latest answer that named them.
func (p *Proxy) Node(id int32) (*Link, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		if l.Node() == id {
			return l, true
		}
	}
	return nil, false
}

// Cut closes all connections, once, and returns when nothing of them is under way any more: what rules
// held of them is lost. Clients may connect again at once.
func (p *Proxy) Cut() {
	p.mu.Lock()
	conns := p.connsLocked()
	p.mu.Unlock()
	cut(conns)
}

// Refuse is Link.Refuse for all brokers, those not known yet included.
func (p *Proxy) Refuse() { _ = p.setMode(refusing) } // nothing can fail

// BlackHole is Link.BlackHole for all brokers, those not known yet included.
func (p *Proxy) BlackHole() error { return p.setMode(black) }

// Heal is Link.Heal for all brokers.
func (p *Proxy) Heal() error { return p.setMode(open) }

func (p *Proxy) setMode(m mode) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	p.mode = m
	var errs []error
	for _, l := range p.links {
		errs = append(errs, l.setModeLocked(m))
	}
	return errors.Join(errs...)
}

// setFaultsLocked replaces the rules.
func (p *Proxy) setFaultsLocked(fs []*Fault) { p.faults.Store(&fs) }

func (p *Proxy) linksLocked() (out []*Link) {
	for _, l := range p.links {
		out = append(out, l)
	}
	return out
}

func (p *Proxy) connsLocked() (out []*conn) {
	for c := range p.conns {
		out = append(out, c)
	}
	return out
}

// goLocked runs a goroutine that Close waits for, unless it is too late for one.
func (p *Proxy) goLocked(f func()) bool {
	if p.closed {
		return false
	}
	p.all.Go(f)
	return true
}

// linkTo returns the link to a broker, made if it is new.
func (p *Proxy) linkTo(host string, port int32) (*Link, error) {
	broker := joinAddress(host, port)
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.links[broker]; l != nil {
		return l, nil
	}
	if p.closed {
		return nil, ErrClosed
	}
	if len(p.links) >= maxLinks {
		return nil, fmt.Errorf("faults: the broker at %s would be number %d: too many for one cluster", broker, maxLinks+1)
	}
	l, err := newLinkLocked(p, broker)
	if err != nil {
		return nil, err
	}
	p.links[broker] = l
	return l, nil
}

// splitAddress reads "host:port".
func splitAddress(s string) (host string, port int32, err error) {
	host, text, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, fmt.Errorf("%q is no address of the form host:port: %w", s, err)
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || host == "" {
		return "", 0, fmt.Errorf("%q is no address of the form host:port, with a port of 1 to 65535", s)
	}
	return host, int32(n), nil
}

// joinAddress is the name under which a broker is known. A broker that is called localhost here and
// 127.0.0.1 there is one.
func joinAddress(host string, port int32) string {
	if host == "localhost" {
		host = loopback
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// judge finds the rules for a request, in order. before are those that act on the request.
func (p *Proxy) judge(c *conn, h *header) (before, after []*Fault, err error) {
	var req kmsg.Request
	decode := func() (kmsg.Request, error) {
		if req != nil || err != nil {
			return req, err
		}
		req, err = h.decode()
		return req, err
	}
	for _, f := range *p.faults.Load() {
		fits, ferr := f.rule.fits(h, c, decode)
		if ferr != nil {
			return nil, nil, ferr
		}
		if !fits || !f.take() {
			continue
		}
		if f.rule.Do.onAnswer() {
			after = append(after, f)
			continue
		}
		before = append(before, f)
		if f.rule.Do.ends() {
			for _, g := range after { // there will be no answer
				g.giveBack()
			}
			return before, nil, nil
		}
	}
	return before, after, nil
}
