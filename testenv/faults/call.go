package faults

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// maxCalls is how many requests of a connection may wait for their answers; a client with more is
	// not read until there are less.
	maxCalls = 1024
	// maxCopies is how many copies DuplicateLater keeps for a connection.
	maxCopies = 64
)

// call is a request that was sent to the broker and waits for its answer.
type call struct {
	key     kmsg.Key
	version int16
	corr    int32
	faults  []*Fault // that act on the answer
	commit  *committing
	copied  bool // it is a copy: nobody waits for its answer
	late    bool // the connection stays for it, though its client may be gone
}

// errBroker: the connection to the broker has ended.
var errBroker = errors.New("faults: the broker has ended the connection")

// requests passes what the client sends, until it ends.
func (c *conn) requests(broker net.Conn) error {
	var h header
	for {
		frame, err := c.up.next()
		if err != nil {
			return err
		}
		if c.deaf.Load() {
			return c.discard()
		}
		if err := h.parse(frame, c.kinds); err != nil {
			return err
		}
		if !bytes.Equal(h.clientID, c.name) {
			c.mu.Lock()
			c.name = slices.Clone(h.clientID)
			c.mu.Unlock()
		}
		if h.key == kmsg.SASLHandshake && h.version == 0 {
			// Its tokens follow without header, and how many does not show.
			return fmt.Errorf("%w: SaslHandshake of version 0; clients since Kafka 1.0 use version 1", ErrUnsupported)
		}
		before, after, err := c.p.judge(c, &h)
		if err != nil {
			return err
		}
		if err := c.request(broker, frame, &h, before, after); err != nil {
			return err
		}
	}
}

// request does what the rules say with one request.
func (c *conn) request(broker net.Conn, frame []byte, h *header, before, after []*Fault) error {
	x := call{key: h.key, version: h.version, corr: h.corr, faults: after}
	copies := 0
	var later []func()
	for _, f := range before {
		release := f.hit()
		if err := c.noteFault(f, h.key); err != nil {
			giveBack(after)
			return err
		}
		switch f.rule.Do {
		case DropRequest:
			c.deaf.Store(true)
			return c.discard()
		case CutBefore:
			return errCut
		case HoldRequest, DelayRequest:
			x.late = true
			if !c.wait(f, release) {
				giveBack(after)
				return errCut
			}
		case Duplicate:
			copies++
		case DuplicateLater:
			if c.ncopies.Load() >= maxCopies {
				giveBack(after)
				return fmt.Errorf("%w: more than %d copies kept of one connection", ErrUnsupported, maxCopies)
			}
			c.ncopies.Add(1)
			later = append(later, func() { c.sendLater(broker, slices.Clone(frame), h, f, release) })
		}
	}
	if c.deaf.Load() { // meanwhile
		giveBack(after)
		return c.discard()
	}
	if err := c.send(broker, frame, x, h); err != nil {
		return err
	}
	for range copies {
		if err := c.send(broker, frame, c.copied(frame, h), h); err != nil {
			return err
		}
	}
	for _, start := range later {
		start()
	}
	return nil
}

// copied makes a frame the copy of a request, with a correlation id of its own: below 0, where those of
// clients are not.
func (c *conn) copied(frame []byte, h *header) call {
	c.corr--
	binary.BigEndian.PutUint32(frame[8:], uint32(c.corr))
	return call{key: h.key, version: h.version, corr: c.corr, copied: true, late: true}
}

// sendLater sends a copy of a request when the rule lets it go.
func (c *conn) sendLater(broker net.Conn, frame []byte, h *header, f *Fault, release <-chan struct{}) {
	x := c.copied(frame, h)
	own := *h // of the copy: h is used again
	own.clientID, own.body = slices.Clone(h.clientID), frame[len(frame)-len(h.body):]
	c.copies.Go(func() {
		defer c.ncopies.Add(-1)
		if c.wait(f, release) && !c.deaf.Load() {
			c.report(c.send(broker, frame, x, &own))
		}
	})
}

// noteFault notes that a rule acts, if that is wanted.
func (c *conn) noteFault(f *Fault, key kmsg.Key) error {
	if c.p.cfg.Events == nil || f.rule.Do == Pass {
		return nil
	}
	return c.p.cfg.Events.fault(name(key), c.clientID(), f.rule.Do.String())
}

// send writes a request to the broker, and notes that an answer is to come.
func (c *conn) send(broker net.Conn, frame []byte, x call, h *header) error {
	unanswered := h.unanswered()
	if !unanswered {
		select {
		case c.room <- struct{}{}:
		case <-c.done:
			giveBack(x.faults)
			return errCut
		}
	}
	c.out.Lock()
	defer c.out.Unlock()
	if log := c.p.cfg.Events; log != nil && isCommit(h.key) {
		req, err := h.decode()
		if err == nil {
			x.commit, err = noteCommit(log, &c.p.topics, req, string(h.clientID))
		}
		if err != nil {
			<-c.room
			giveBack(x.faults)
			return err
		}
	}
	if !unanswered {
		c.mu.Lock()
		c.calls = append(c.calls, x)
		if x.late {
			c.late++
		}
		c.mu.Unlock()
	}
	if _, err := broker.Write(frame); err != nil {
		return fmt.Errorf("%w: %w", errBroker, err)
	}
	return nil
}

// take finds the call of an answer. Earlier ones will get none: brokers answer in order.
func (c *conn) take(corr int32) (x call, ok bool) {
	c.mu.Lock()
	i := slices.IndexFunc(c.calls, func(x call) bool { return x.corr == corr })
	if i < 0 {
		c.mu.Unlock()
		return call{}, false
	}
	x = c.calls[i]
	var without []*Fault
	for _, y := range c.calls[:i] {
		without = append(without, y.faults...)
	}
	late := 0
	for _, y := range c.calls[:i+1] {
		if y.late {
			late++
		}
	}
	c.calls = slices.Delete(c.calls, 0, i+1)
	c.late -= late
	c.mu.Unlock()
	giveBack(without)
	for range i + 1 {
		<-c.room
	}
	if late > 0 {
		select {
		case c.settled <- struct{}{}:
		default:
		}
	}
	return x, true
}

// answers passes what the broker sends, until it ends.
func (c *conn) answers(broker net.Conn) error {
	down := frames{r: bufio.NewReaderSize(broker, readBuffer), max: c.p.cfg.MaxFrame, least: 4}
	for {
		frame, err := down.next()
		if err != nil {
			return err
		}
		corr := int32(binary.BigEndian.Uint32(frame[4:]))
		x, ok := c.take(corr)
		if !ok {
			return fmt.Errorf("%w: correlation id %d, for which no request waits", ErrAnswer, corr)
		}
		if x.commit != nil {
			resp, _, err := decodeAnswer(frame, x.key, x.version)
			if err == nil {
				err = x.commit.answered(resp)
			}
			if err != nil {
				giveBack(x.faults)
				return err
			}
		}
		if x.copied {
			continue
		}
		if c.mute.Load() {
			giveBack(x.faults)
			continue
		}
		if readsAnswer(x.key, x.version) {
			if frame, err = c.p.rewrite(frame, x.key, x.version); err != nil {
				return err
			}
		}
		pass, err := c.answer(x)
		if err != nil {
			return err
		}
		if !pass {
			continue
		}
		if _, err := c.client.Write(frame); err != nil {
			// The other goroutine notices the same when it reads; it may have something to send yet.
			c.mute.Store(true)
		}
	}
}

// answer does what the rules say with one answer, and reports whether the client gets it.
func (c *conn) answer(x call) (pass bool, err error) {
	for i, f := range x.faults {
		if f.isGone() {
			continue
		}
		release := f.hit()
		if err := c.noteFault(f, x.key); err != nil {
			return false, err
		}
		switch f.rule.Do {
		case DropAnswer:
			c.mute.Store(true)
			giveBack(x.faults[i+1:])
			return false, nil
		case CutAfter:
			giveBack(x.faults[i+1:])
			return false, errCut
		case HoldAnswer, DelayAnswer:
			if !c.wait(f, release) {
				return false, errCut
			}
		}
	}
	return !c.mute.Load(), nil
}

// wait returns when the rule lets go, and reports whether the connection is still there.
func (c *conn) wait(f *Fault, release <-chan struct{}) bool {
	var over <-chan time.Time
	if f.rule.Delay > 0 {
		t := time.NewTimer(f.rule.Delay)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-release:
	case <-f.removed:
	case <-over:
	case <-c.done:
		return false
	}
	return c.ctx.Err() == nil
}

// discard loses what the client sends, until it ends.
func (c *conn) discard() error {
	_, err := io.Copy(io.Discard, c.up.r)
	return err
}
