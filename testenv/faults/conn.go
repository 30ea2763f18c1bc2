package faults

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
)

// conn is one connection of a client, and the one to the broker behind it. Brokers answer the requests of
// a connection in order, and clients rely on it; so does this.
//
// The goroutine of run reads the client, that of answers the broker. Either closes both ends when its own
// ends, and run waits for the other.
type conn struct {
	p      *Proxy
	link   *Link
	number int // as in Rule.Connection
	client net.Conn
	ctx    context.Context
	cancel context.CancelFunc
	done   <-chan struct{} // of ctx: closed by close
	ended  chan struct{}   // closed when run has returned
	up     frames          // of the client
	kinds  kinds           // of run's goroutine
	corr   int32           // of the latest copy of a request; of run's goroutine
	name   []byte          // the client id of the latest request; written by run's goroutine, under mu

	deaf atomic.Bool // nothing of the client reaches the broker any more
	mute atomic.Bool // nothing of the broker reaches the client any more
	room chan struct{}
	// settled says that a late call has ended; one is enough.
	settled chan struct{}
	copies  sync.WaitGroup
	ncopies atomic.Int32

	// out is the order of writes to the broker, and of calls: who sends holds it. Taken before mu.
	out sync.Mutex

	mu     sync.Mutex // leaf
	broker net.Conn   // nil until it is dialed
	closed bool
	calls  []call // in the order in which they were sent
	late   int    // of calls
}

func newConn(l *Link, client net.Conn, number int) *conn {
	c := &conn{p: l.p, link: l, number: number, client: client, kinds: kinds{},
		up:    frames{r: bufio.NewReaderSize(client, readBuffer), max: l.p.cfg.MaxFrame, least: leastRequest},
		ended: make(chan struct{}), room: make(chan struct{}, maxCalls), settled: make(chan struct{}, 1)}
	c.ctx, c.cancel = context.WithCancel(l.p.ctx)
	c.done = c.ctx.Done()
	return c
}

// silence makes the connection a black hole.
func (c *conn) silence() {
	c.deaf.Store(true)
	c.mute.Store(true)
}

// close ends the connection at once. It may be called by anyone, and again.
func (c *conn) close() {
	c.mu.Lock()
	c.closed = true
	broker := c.broker
	c.mu.Unlock()
	c.cancel()
	c.client.Close()
	if broker != nil {
		broker.Close()
	}
}

// report remembers an error, unless it is an ordinary end, or our own doing.
func (c *conn) report(err error) {
	if err == nil || c.ctx.Err() != nil || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return
	}
	c.p.report(&ConnError{Broker: c.link.broker, Client: c.client.RemoteAddr().String(), ClientID: c.clientID(), Connection: c.number, Err: err})
}

func (c *conn) clientID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.name)
}

// run serves the connection until it ends.
func (c *conn) run() {
	defer c.finish()
	defer c.close()
	var answers sync.WaitGroup
	defer answers.Wait()
	defer c.close() // before the wait
	if c.deaf.Load() {
		_, _ = io.Copy(io.Discard, c.client) // a black hole: until one of us closes
		return
	}
	broker, err := new(net.Dialer).DialContext(c.ctx, "tcp", c.link.broker)
	if err != nil {
		c.report(fmt.Errorf("%w: %w", ErrUnreachable, err))
		c.link.check(c.ctx)
		reset(c.client)
		return
	}
	if !c.connected(broker) {
		return
	}
	// Clients speak first, in plain and in TLS.
	first, err := c.up.r.Peek(3)
	if err != nil {
		return
	}
	if isTLS(first) {
		answers.Go(func() { c.blind(c.client, broker, &c.mute); c.link.check(c.ctx); c.close() })
		c.blind(broker, c.up.r, &c.deaf)
		return
	}
	answers.Go(func() {
		err := c.answers(broker)
		c.report(err)
		if !errors.Is(err, errCut) {
			c.link.check(c.ctx)
		}
		c.close()
	})
	err = c.requests(broker)
	c.report(err)
	if errors.Is(err, errBroker) {
		c.link.check(c.ctx)
	}
	if errors.Is(err, errCut) || errors.Is(err, ErrFrame) || errors.Is(err, ErrUnsupported) {
		return // our doing
	}
	c.settle()
}

// connected takes the connection to the broker over, unless the conn has been closed.
func (c *conn) connected(broker net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		broker.Close()
		return false
	}
	c.broker = broker
	return true
}

// cut closes connections, and waits until nothing of them is under way any more.
func cut(conns []*conn) {
	for _, c := range conns {
		c.close()
	}
	for _, c := range conns {
		<-c.ended
	}
}

// finish forgets the connection.
func (c *conn) finish() {
	defer close(c.ended)
	c.p.mu.Lock()
	delete(c.p.conns, c)
	c.p.mu.Unlock()
	c.mu.Lock()
	calls := c.calls
	c.calls = nil
	c.mu.Unlock()
	for _, x := range calls {
		giveBack(x.faults)
	}
}

func giveBack(fs []*Fault) {
	for _, f := range fs {
		f.giveBack()
	}
}

// isTLS reports whether a connection begins with a TLS handshake. Read as a length it would be more than
// any request has.
func isTLS(b []byte) bool { return b[0] == 0x16 && b[1] == 3 && b[2] <= 4 }

// blind passes bytes that nobody here can read.
func (c *conn) blind(to io.Writer, from io.Reader, silent *atomic.Bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !silent.Load() {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// errCut ends a connection by a rule.
var errCut = fmt.Errorf("faults: cut by a rule: %w", net.ErrClosed)

// settle waits, when the client is gone, for what the broker is to get all the same.
func (c *conn) settle() {
	c.copies.Wait() // they end with done, too
	for {
		c.mu.Lock()
		late := c.late
		c.mu.Unlock()
		if late == 0 {
			return
		}
		select {
		case <-c.settled:
		case <-c.done:
			return
		}
	}
}
