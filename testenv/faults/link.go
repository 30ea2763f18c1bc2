package faults

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// mode is how a link treats connections.
type mode int

const (
	open mode = iota
	refusing
	black
)

// Link is the proxy's way to one broker: an address of its own, behind which that broker stands. Its
// methods may be called from any goroutine.
type Link struct {
	p      *Proxy
	broker string // its address
	port   int    // at which the proxy listens
	node   atomic.Int32
	keep   *reservation // of the port, while nobody listens; nil where the system has no such thing

	mu     sync.Mutex
	mode   mode
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
	switch {
	case m == refusing && l.ln != nil:
		l.ln.Close()
		l.ln = nil
	case m != refusing && l.ln == nil:
		return l.listenLocked()
	}
	return nil
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
	m := l.mode
	l.mu.Unlock()
	if m == refusing || p.closed { // accepted by the system before the listener was closed
		nc.Close()
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
