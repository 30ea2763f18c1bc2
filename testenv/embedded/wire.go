package embedded

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
)

// wire is everything between kfake and the network: it listens, and watches
// each connection's bytes in both directions. Requests and answers that the
// recorder or a rule asks for are parsed, all others are only counted past.
//
// Watching the bytes, rather than using kfake's controls, has three reasons:
// only here the answer is seen next to its request; an answer can be lost
// after the broker has acted; and a held connection does not stop the broker's
// one event loop.
type wire struct {
	listenFn func(network, address string) (net.Listener, error)
	tls      *tls.Config // nil: plaintext
	rec      *recorder
	keep     *keeper // set before the first connection

	// released ends all holds; closed once, by Broker.Close.
	released    chan struct{}
	releaseOnce sync.Once

	mu        sync.Mutex // leaf lock: held for bookkeeping only
	listeners []*listener
	conns     map[*conn]struct{}
	rules     []*rule
	down      bool
	closed    bool
}

func newWire(listen func(network, address string) (net.Listener, error), tc *tls.Config, rec *recorder) *wire {
	return &wire{
		listenFn: listen,
		tls:      tc,
		rec:      rec,
		released: make(chan struct{}),
		conns:    make(map[*conn]struct{}),
	}
}

// listen is what kfake calls for each broker.
func (w *wire) listen(network, address string) (net.Listener, error) {
	inner, err := w.listenFn(network, address)
	if err != nil {
		return nil, err
	}
	l := &listener{w: w, network: network, addr: inner.Addr(), inner: inner, up: make(chan struct{}), end: make(chan struct{})}
	w.mu.Lock()
	w.listeners = append(w.listeners, l)
	w.mu.Unlock()
	return l, nil
}

// release ends all holds for good.
func (w *wire) release() { w.releaseOnce.Do(func() { close(w.released) }) }

// close ends all listeners and connections.
func (w *wire) close() {
	w.release()
	w.mu.Lock()
	w.closed = true
	ls, cs := w.listeners, w.takeConnsLocked()
	w.mu.Unlock()
	for _, l := range ls {
		l.Close()
	}
	for _, c := range cs {
		c.Close()
	}
}

func (w *wire) takeConnsLocked() []*conn {
	cs := make([]*conn, 0, len(w.conns))
	for c := range w.conns {
		cs = append(cs, c)
	}
	return cs
}

// Down cuts all connections and stops listening, as a broker that has died:
// clients that dial are refused until Up. Records, groups and sessions stay;
// session timeouts run on. Calling it when the broker is down does nothing.
func (b *Broker) Down() { b.wire.setDown() }

// Up listens again on the same addresses. It fails when another process has
// taken one of the ports meanwhile.
func (b *Broker) Up() error { return b.wire.setUp() }

// Disconnect cuts all connections once; clients may dial again at once.
func (b *Broker) Disconnect() {
	b.wire.mu.Lock()
	cs := b.wire.takeConnsLocked()
	b.wire.mu.Unlock()
	for _, c := range cs {
		c.Close()
	}
}

func (w *wire) setDown() {
	w.mu.Lock()
	w.down = true
	ls, cs := slices.Clone(w.listeners), w.takeConnsLocked()
	w.mu.Unlock()
	for _, l := range ls {
		l.setDown()
	}
	for _, c := range cs {
		c.Close()
	}
}

func (w *wire) setUp() error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return ErrClosed
	}
	if !w.down {
		w.mu.Unlock()
		return nil
	}
	w.down = false
	ls := slices.Clone(w.listeners)
	w.mu.Unlock()
	var errs []error
	for _, l := range ls {
		errs = append(errs, l.setUp())
	}
	return errors.Join(errs...)
}

// listener hides from kfake, which stops a broker at the first failed Accept,
// that the broker is away for a while.
type listener struct {
	w       *wire
	network string
	addr    net.Addr

	mu     sync.Mutex
	inner  net.Listener  // nil while down
	up     chan struct{} // closed when inner is set again
	end    chan struct{} // closed by Close
	closed bool
}

func (l *listener) Addr() net.Addr { return l.addr }

func (l *listener) Accept() (net.Conn, error) {
	for {
		l.mu.Lock()
		inner, up, closed := l.inner, l.up, l.closed
		l.mu.Unlock()
		if closed {
			return nil, net.ErrClosed
		}
		if inner == nil {
			select {
			case <-up:
			case <-l.end:
			}
			continue
		}
		c, err := inner.Accept()
		if err == nil {
			if wc := l.w.wrap(c); wc != nil {
				return wc, nil
			}
			continue // the broker is down or closed
		}
		l.mu.Lock()
		replaced := l.inner != inner || l.closed
		l.mu.Unlock()
		if !replaced {
			return nil, err
		}
	}
}

func (l *listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	close(l.end)
	if l.inner != nil {
		return l.inner.Close()
	}
	return nil
}

func (l *listener) setDown() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inner != nil && !l.closed {
		l.inner.Close()
		l.inner = nil
		l.up = make(chan struct{})
	}
}

func (l *listener) setUp() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.inner != nil {
		return nil
	}
	inner, err := l.w.listenFn(l.network, l.addr.String())
	if err != nil {
		return fmt.Errorf("embedded: up: %w", err)
	}
	l.inner = inner
	close(l.up)
	return nil
}

// wrap takes a new connection over, or closes it and returns nil if the broker
// went down between the accept and now.
func (w *wire) wrap(inner net.Conn) *conn {
	if w.tls != nil {
		inner = tls.Server(inner, w.tls)
	}
	c := &conn{Conn: inner, w: w, end: make(chan struct{}), pending: make(map[int32]*exchange), waiting: make(map[int32]*waiting)}
	// key, version and correlation id are enough to decide about a request.
	c.in = splitter{peek: 8, keep: c.keepRequest, frame: c.request}
	c.out = splitter{peek: 4, keep: c.keepAnswer, frame: c.answer}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.down {
		inner.Close()
		return nil
	}
	w.conns[c] = struct{}{}
	return c
}
