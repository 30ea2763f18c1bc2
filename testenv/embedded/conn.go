package embedded

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// exchange is a request of interest that waits for its answer.
type exchange struct {
	key      kmsg.Key
	clientID string
	req      kmsg.Request
	received time.Time
	rules    []*rule // that act on the answer
}

// conn is one connection. kfake reads it from one goroutine and writes it from
// another, one request at a time; in belongs to the reader, out to the writer,
// pending to both under mu.
type conn struct {
	net.Conn
	w       *wire
	in, out splitter
	end     chan struct{} // closed by Close
	endOnce sync.Once

	// What the frames in the bytes just read, or about to be written, ask for.
	inRules, outRules []*rule
	inWaits           map[int32]*exchange

	mu      sync.Mutex
	pending map[int32]*exchange
	waiting map[int32]*waiting
}

// errCut is what kfake sees when a rule breaks the connection.
var errCut = fmt.Errorf("embedded: connection cut by a fault: %w", net.ErrClosed)

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.inRules, c.inWaits = c.inRules[:0], nil
		c.in.feed(p[:n])
		if !c.apply(c.inRules) {
			return 0, errCut
		}
		for corr, x := range c.inWaits {
			c.waits(corr, x)
		}
	}
	if err != nil {
		c.awaitAnswers()
	}
	return n, err
}

func (c *conn) Write(p []byte) (int, error) {
	c.outRules = c.outRules[:0]
	c.out.feed(p)
	if !c.apply(c.outRules) {
		return 0, errCut
	}
	return c.Conn.Write(p)
}

// apply waits or cuts as the rules say and reports whether the bytes may pass.
func (c *conn) apply(rules []*rule) bool {
	for _, r := range rules {
		if r.cuts() {
			c.Close()
			return false
		}
		var over <-chan time.Time
		if r.delay > 0 {
			over = time.After(r.delay)
		}
		select {
		case <-r.until:
		case <-over:
		case <-r.removed:
		case <-c.w.released:
		case <-c.end:
			return false
		}
	}
	return true
}

// Close closes the connection; requests that had no answer yet are recorded as
// lost.
func (c *conn) Close() error {
	err := net.ErrClosed
	c.endOnce.Do(func() {
		close(c.end)
		err = c.Conn.Close()
		c.mu.Lock()
		lost := c.pending
		c.pending = make(map[int32]*exchange)
		c.mu.Unlock()
		for _, x := range lost {
			c.w.rec.lost(x)
		}
		c.w.mu.Lock()
		delete(c.w.conns, c)
		c.w.mu.Unlock()
	})
	return err
}

func (c *conn) keepRequest(head []byte) bool {
	r := kbin.Reader{Src: head}
	key := kmsg.Key(r.Int16())
	return recorded(key) || key == kmsg.JoinGroup || c.w.ruled(key)
}

func (c *conn) keepAnswer(head []byte) bool {
	r := kbin.Reader{Src: head}
	corr := r.Int32()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending[corr] != nil || c.waiting[corr] != nil
}

// request handles one whole request of interest.
func (c *conn) request(frame []byte) {
	r := kbin.Reader{Src: frame}
	key, version, corr := r.Int16(), r.Int16(), r.Int32()
	clientID := r.NullableString()
	req := kmsg.RequestForKey(key)
	if req == nil {
		return
	}
	req.SetVersion(version)
	if req.IsFlexible() {
		kmsg.SkipTags(&r)
	}
	// ReadFrom keeps slices of its input; the frame is reused.
	if !r.Ok() || req.ReadFrom(slices.Clone(r.Src)) != nil {
		return
	}
	x := &exchange{key: kmsg.Key(key), req: req, received: time.Now()}
	if clientID != nil {
		x.clientID = *clientID
	}
	for _, rule := range c.w.match(x) {
		if rule.answers {
			x.rules = append(x.rules, rule)
		} else {
			c.inRules = append(c.inRules, rule)
		}
	}
	if x.key == kmsg.JoinGroup || x.key == kmsg.SyncGroup {
		if c.inWaits == nil {
			c.inWaits = make(map[int32]*exchange)
		}
		c.inWaits[corr] = x
	}
	c.w.rec.received(x)
	c.mu.Lock()
	c.pending[corr] = x
	c.mu.Unlock()
}

// answer handles one whole answer of interest, before the client can see it.
func (c *conn) answer(frame []byte) {
	r := kbin.Reader{Src: frame}
	corr := r.Int32()
	c.mu.Lock()
	x := c.pending[corr]
	delete(c.pending, corr)
	c.over(corr)
	c.mu.Unlock()
	if x == nil {
		return
	}
	resp := x.req.ResponseKind()
	resp.SetVersion(x.req.GetVersion())
	if resp.IsFlexible() && x.key != kmsg.ApiVersions {
		kmsg.SkipTags(&r)
	}
	if err := resp.ReadFrom(slices.Clone(r.Src)); err != nil {
		c.w.rec.lost(x)
		return
	}
	c.w.keep.answered(x, resp)
	c.outRules = append(c.outRules, x.rules...)
	c.w.rec.answered(x, resp, slices.ContainsFunc(x.rules, (*rule).cuts))
}

// splitter cuts a stream into frames of a length word and a payload. Payloads
// that keep declines, after their first peek bytes, are skipped without copy.
type splitter struct {
	peek  int
	keep  func(head []byte) bool
	frame func(payload []byte)

	size    [4]byte
	nsize   int
	left    int    // payload bytes still to come
	buf     []byte // payload so far
	skip    bool
	started bool // left is valid
}

func (s *splitter) feed(p []byte) {
	for len(p) > 0 {
		if !s.started {
			n := copy(s.size[s.nsize:], p)
			s.nsize += n
			p = p[n:]
			if s.nsize < 4 {
				return
			}
			r := kbin.Reader{Src: s.size[:]}
			s.nsize, s.left, s.buf, s.skip, s.started = 0, max(0, int(r.Int32())), s.buf[:0], false, true
			// Frames too short for the header we decide on (SASL tokens of
			// the oldest handshake) are not ours.
			if s.left < s.peek {
				s.skip = true
			}
			if s.left == 0 {
				s.started = false
			}
			continue
		}
		n := min(s.left, len(p))
		if !s.skip && len(s.buf) < s.peek {
			// Decide as soon as the head is there; take no more than it.
			n = min(n, s.peek-len(s.buf))
		}
		if !s.skip {
			s.buf = append(s.buf, p[:n]...)
		}
		s.left -= n
		p = p[n:]
		if !s.skip && len(s.buf) == s.peek && !s.keep(s.buf) {
			s.skip = true
		}
		if s.left == 0 {
			s.started = false
			if !s.skip {
				s.frame(s.buf)
			}
		}
	}
}
