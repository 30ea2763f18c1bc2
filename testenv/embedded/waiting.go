package embedded

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// In Kafka the session of a member does not run while it waits in a JoinGroup or SyncGroup, and starts
// anew with the answer, whoever hears of it. kfake differs in two ways, which this file makes up for:
//
//   - It starts the session of a new member when it has handed the answer to its connection. To one that
//     has ended it may not, and then the member stays, with what it is given, for ever. So the end of a
//     connection is kept from kfake until what waits on it is answered.
//   - It lets the session run while a member waits. A live one that waits for a dead one is thrown out
//     then, and its request never answered. So heartbeats are sent in its name.

// waiting is a JoinGroup or SyncGroup that kfake has, and has not answered.
type waiting struct {
	answered chan struct{}
	timer    *time.Timer // to the next heartbeat
}

// keeper sends heartbeats for members that wait. It has a client of its own: heartbeats may be held.
type keeper struct {
	b *Broker

	mu     sync.Mutex
	groups map[string]groupSeen
	client *kgo.Client
	closed bool
	wg     sync.WaitGroup // heartbeats under way
}

// groupSeen is what answers to joins have said of a group.
type groupSeen struct {
	generation int32         // the newest
	session    time.Duration // the shortest of a member
}

func newKeeper(b *Broker) *keeper { return &keeper{b: b, groups: make(map[string]groupSeen)} }

// answered notes what an answer says of the group.
func (k *keeper) answered(x *exchange, resp kmsg.Response) {
	join, ok := resp.(*kmsg.JoinGroupResponse)
	if !ok || join.ErrorCode != 0 {
		return
	}
	req := x.req.(*kmsg.JoinGroupRequest)
	session := time.Duration(req.SessionTimeoutMillis) * time.Millisecond
	k.mu.Lock()
	defer k.mu.Unlock()
	g := k.groups[req.Group]
	g.generation = join.Generation
	if g.session == 0 || session < g.session {
		g.session = session
	}
	k.groups[req.Group] = g
}

// beat is the heartbeat for a request that waits, and how long it may take until the next; nil: there is no
// session yet that could end.
func (k *keeper) beat(x *exchange) (*kmsg.HeartbeatRequest, time.Duration) {
	beat := kmsg.NewPtrHeartbeatRequest()
	switch req := x.req.(type) {
	case *kmsg.JoinGroupRequest:
		beat.Group, beat.MemberID, beat.InstanceID = req.Group, req.MemberID, req.InstanceID
	case *kmsg.SyncGroupRequest:
		beat.Group, beat.MemberID, beat.InstanceID = req.Group, req.MemberID, req.InstanceID
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	g, ok := k.groups[beat.Group]
	if !ok || beat.MemberID == "" || k.closed {
		return nil, 0
	}
	beat.Generation = g.generation
	return beat, max(g.session/3, time.Millisecond)
}

// send sends a heartbeat. What comes of it does not matter.
func (k *keeper) send(beat *kmsg.HeartbeatRequest) {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return
	}
	k.wg.Add(1)
	defer k.wg.Done()
	if k.client == nil {
		cl, err := kgo.NewClient(k.b.ClientOpts(kgo.ClientID("embedded-keeper"))...)
		if err != nil {
			k.mu.Unlock()
			return
		}
		k.client = cl
	}
	cl := k.client
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = beat.RequestWith(ctx, cl)
}

func (k *keeper) close() {
	k.mu.Lock()
	k.closed = true
	cl := k.client
	k.mu.Unlock()
	if cl != nil {
		cl.Close()
	}
	k.wg.Wait()
}

// waits notes that kfake has a request of a member.
func (c *conn) waits(corr int32, x *exchange) {
	w := &waiting{answered: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting[corr] = w
	if _, pause := c.w.keep.beat(x); pause > 0 {
		w.timer = time.AfterFunc(pause, func() { c.keepAlive(corr, w, x) })
	}
}

// keepAlive sends a heartbeat for a request, and sees to the next.
func (c *conn) keepAlive(corr int32, w *waiting, x *exchange) {
	beat, pause := c.w.keep.beat(x)
	select {
	case <-w.answered:
		return
	case <-c.end: // the client is dead, or has no patience left
		return
	default:
	}
	if beat == nil {
		return
	}
	c.w.keep.send(beat)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting[corr] == w {
		w.timer.Reset(pause)
	}
}

// awaitAnswers returns when nothing on the connection waits.
func (c *conn) awaitAnswers() {
	c.mu.Lock()
	var all []*waiting
	for _, w := range c.waiting {
		all = append(all, w)
	}
	c.mu.Unlock()
	for _, w := range all {
		select {
		case <-w.answered:
		case <-c.w.released:
		}
	}
}

// over ends the wait of a request; c.mu is held.
func (c *conn) over(corr int32) {
	w := c.waiting[corr]
	if w == nil {
		return
	}
	delete(c.waiting, corr)
	close(w.answered)
	if w.timer != nil {
		w.timer.Stop()
	}
}
