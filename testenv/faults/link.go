package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// mode is how a link treats connections.
type mode int

const (
	open mode = iota
	refusing
	black
)

// Link is the proxy's way to one broker: an address of its own, behind which that broker stands. While the
// broker refuses connections, so does the link. Its methods may be called from any goroutine.
type Link struct {
	p      *Proxy
	broker string // its address
	port   int    // at which the proxy listens
	node   atomic.Int32
	keep   *reservation // of the port, while nobody listens; nil where the system has no such thing

	mu     sync.Mutex
	mode   mode
	away   bool         // the broker refuses connections, and watch looks for it
	ln     net.Listener // nil while refusing
	closed bool
}

func newLinkLocked(p *Proxy, broker string) (*Link, error) {
	l := &Link{p: p, broker: broker, mode: p.mode}
	l.node.Store(-1)
	var err error
	if l.keep, err = reserve(); err != nil {
		return nil, fmt.Errorf("faults: a port for the broker at %s: %w", broker, err)
	}
	if l.keep != nil {
		l.port = l.keep.port
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mode == refusing && l.keep != nil {
		return l, nil
	}
	if err := l.listenLocked(); err != nil {
		l.keep.close()
		return nil, err
	}
	if l.mode == refusing { // the port had to be found out
		l.ln.Close()
		l.ln = nil
	}
	return l, nil
}

// Addr is the address at which clients find the broker through the proxy.
func (l *Link) Addr() string { return net.JoinHostPort(loopback, strconv.Itoa(l.port)) }

// Broker is the address of the broker.
func (l *Link) Broker() string { return l.broker }

// Node is the broker's id, as far as an answer has named it; else -1.
func (l *Link) Node() int32 { return l.node.Load() }

// Cut closes all connections to the broker, once, as Proxy.Cut does.
func (l *Link) Cut() { cut(l.conns()) }

// Refuse stops listening: who connects is refused, as by a broker that is not there. Connections stay;
// see Cut.
func (l *Link) Refuse() { _ = l.setMode(refusing) } // nothing can fail

// BlackHole lets nothing through any more, in either direction: connections stay, and new ones are
// accepted, and whatever is sent on them is lost, as on a network that drops all packets. Connections
// that were in a black hole are not healed by Heal: what they have lost is missing. They end when one of
// their sides ends them. It fails as Heal does.
func (l *Link) BlackHole() error { return l.setMode(black) }

// Heal ends Refuse and BlackHole. It fails where the port was taken by another process meanwhile, which
// does not happen on Linux.
func (l *Link) Heal() error { return l.setMode(open) }

func (l *Link) setMode(m mode) error {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if l.p.closed {
		return ErrClosed
	}
	return l.setModeLocked(m)
}

// setModeLocked is called with the lock of the proxy.
func (l *Link) setModeLocked(m mode) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mode = m
	if m == black {
		for c := range l.p.conns {
			if c.link == l {
				c.silence()
			}
		}
	}
	return l.adjustLocked()
}

// adjustLocked listens or does not, as it should; both locks are held. It cannot fail to stop.
func (l *Link) adjustLocked() error {
	switch should := l.mode == black || l.mode == open && !l.away; {
	case should && l.ln == nil:
		return l.listenLocked()
	case !should && l.ln != nil:
		l.ln.Close()
		l.ln = nil
	}
	return nil
}

const (
	// checkTime bounds the question whether a broker is there. One that does not refuse within it is.
	checkTime = 250 * time.Millisecond
	// watchTick is how often a broker that is away is looked for.
	watchTick = 20 * time.Millisecond
)

// refuses asks whether the broker refuses connections.
func (l *Link) refuses(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", l.broker)
	if err == nil {
		nc.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// check is called when the broker has ended a connection, before its client is told: a broker that has
// died refuses the client's next connection, and so must the link.
func (l *Link) check(ctx context.Context) {
	if !l.refuses(ctx) {
		return
	}
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away || !l.p.goLocked(l.watch) {
		return
	}
	l.away = true
	_ = l.adjustLocked()
}

// watch waits until the broker is back.
func (l *Link) watch() {
	tick := time.NewTicker(watchTick)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-l.p.done:
			return
		}
		if l.refuses(l.p.ctx) {
			continue
		}
		l.p.mu.Lock()
		l.mu.Lock()
		l.away = false
		err := l.adjustLocked()
		l.away = err != nil
		l.mu.Unlock()
		l.p.mu.Unlock()
		if err == nil || errors.Is(err, ErrClosed) {
			return
		}
		l.p.report(&ConnError{Broker: l.broker, Err: err})
	}
}

// listenLocked listens, at the link's port if it has one; both locks are held.
func (l *Link) listenLocked() error {
	ln, err := listen(l.p.ctx, net.JoinHostPort(loopback, strconv.Itoa(l.port)))
	if err != nil {
		return fmt.Errorf("faults: listen for the broker at %s: %w", l.broker, err)
	}
	l.port = ln.Addr().(*net.TCPAddr).Port
	if !l.p.goLocked(func() { l.accept(ln) }) {
		ln.Close()
		return ErrClosed
	}
	l.ln = ln
	return nil
}

// accept takes connections until the listener is closed.
func (l *Link) accept(ln net.Listener) {
	for {
		nc, err := ln.Accept()
		switch {
		case err == nil:
			l.serve(nc)
		case errors.Is(err, net.ErrClosed):
			return
		default: // no descriptors, most likely: it may pass
			l.p.report(&ConnError{Broker: l.broker, Err: err})
			select {
			case <-time.After(10 * time.Millisecond):
			case <-l.p.done:
			}
		}
	}
}

// serve starts a connection.
func (l *Link) serve(nc net.Conn) {
	p := l.p
	p.mu.Lock()
	defer p.mu.Unlock()
	l.mu.Lock()
	m, away := l.mode, l.away
	l.mu.Unlock()
	if m == refusing || m == open && away || p.closed { // accepted by the system before the listener was closed
		reset(nc)
		return
	}
	p.accepted++
	c := newConn(l, nc, p.accepted)
	if m == black {
		c.silence()
	}
	p.conns[c] = struct{}{}
	p.goLocked(c.run) // not too late: closed was looked at
}

// reset closes a client's connection so that it does not look like one that the broker has accepted and
// then ended, which clients take for a wrong protocol.
func reset(nc net.Conn) {
	if tc, ok := nc.(*net.TCPConn); ok {
		_ = tc.SetLinger(0)
	}
	nc.Close()
}

func (l *Link) conns() (out []*conn) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	for c := range l.p.conns {
		if c.link == l {
			out = append(out, c)
		}
	}
	return out
}

func (l *Link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	if l.ln != nil {
		l.ln.Close()
		l.ln = nil
	}
	l.keep.close()
}
