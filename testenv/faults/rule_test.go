package faults

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick/testenv/embedded"
)

const at = 7 // the offset that tests commit

func inject(t *testing.T, do Action) (*embedded.Broker, *Proxy, *Fault, *wire) {
	t.Helper()
	b, p := between(t, embedded.Topic("in", 4))
	f := Inject(t, p, Rule{Do: do, Keys: []kmsg.Key{kmsg.OffsetCommit}})
	return b, p, f, dial(t, p.Addrs()[0])
}

func wait(t *testing.T, f *Fault, n int) {
	t.Helper()
	if err := f.Wait(limited(t), n); err != nil {
		t.Fatal(err)
	}
}

// other makes a round trip over the proxy and the broker beside the connection of a test: what was on
// its way before has arrived, if it was to arrive.
func other(t *testing.T, b *embedded.Broker, p *Proxy) {
	t.Helper()
	dial(t, p.Addrs()[0]).ask(commit("in", 1000))
	waitSeen(t, b, 1000, 1)
}

func TestPass(t *testing.T) {
	b, p, f, w := inject(t, Pass)
	if f.Hits() != 0 {
		t.Error("hits before any request")
	}
	w.ask(versions())
	w.ask(commit("in", at))
	waitSeen(t, b, at, 1)
	wait(t, f, 1)
	noErrors(t, p)
}

func TestDropRequest(t *testing.T) {
	b, p, f, w := inject(t, DropRequest)
	w.ask(versions())
	w.send(commit("in", at))
	w.send(commit("in", at+1)) // behind it
	wait(t, f, 1)
	other(t, b, p)
	p.Cut()
	if n := w.ends(); n > 0 {
		t.Errorf("%d bytes of answers", n)
	}
	if seen(b, at) != 0 || seen(b, at+1) != 0 {
		t.Error("the broker has got what was dropped")
	}
	if f.Hits() != 1 {
		t.Errorf("%d hits", f.Hits())
	}
	noErrors(t, p)
}

// Answers to what was sent before still arrive.
func TestDropRequestLeavesEarlierAnswers(t *testing.T) {
	_, p := between(t, embedded.Topic("in", 1))
	hold := Inject(t, p, Rule{Do: HoldAnswer, Keys: []kmsg.Key{kmsg.ApiVersions}})
	drop := Inject(t, p, Rule{Do: DropRequest, Keys: []kmsg.Key{kmsg.OffsetCommit}})
	w := dial(t, p.Addrs()[0])
	v := versions()
	w.send(v)
	wait(t, hold, 1)
	w.send(commit("in", at))
	wait(t, drop, 1)
	hold.Release()
	w.answer(v, 1)
}

func TestDropAnswer(t *testing.T) {
	b, p, f, w := inject(t, DropAnswer)
	w.send(commit("in", at))
	wait(t, f, 1)
	if seen(b, at) != 1 {
		t.Error("the broker has not acted on the request whose answer was dropped")
	}
	w.send(commit("in", at+1)) // reaches the broker, and has no answer either
	waitSeen(t, b, at+1, 1)
	other(t, b, p)
	p.Cut()
	if n := w.ends(); n > 0 {
		t.Errorf("%d bytes of answers", n)
	}
	noErrors(t, p)
}

func TestHoldRequest(t *testing.T) {
	b, p, f, w := inject(t, HoldRequest)
	c, v := commit("in", at), versions()
	w.send(c)
	w.send(v) // waits behind it
	wait(t, f, 1)
	other(t, b, p)
	if seen(b, at) != 0 {
		t.Fatal("the broker has got what is held")
	}
	f.Release()
	w.answer(c, 1)
	w.answer(v, 2)
	if seen(b, at) != 1 {
		t.Error("the broker has not got what was held")
	}
	noErrors(t, p)
}

// A request that is held outlives its client, as one that is long on its way.
func TestHoldRequestOutlivesClient(t *testing.T) {
	b, p, f, w := inject(t, HoldRequest)
	w.send(commit("in", at))
	wait(t, f, 1)
	w.Close()
	other(t, b, p)
	f.Remove()
	waitSeen(t, b, at, 1)
	noErrors(t, p)
}

func TestHoldAnswer(t *testing.T) {
	b, p, f, w := inject(t, HoldAnswer)
	c, v := commit("in", at), versions()
	w.send(c)
	w.send(v)
	wait(t, f, 1)
	waitSeen(t, b, at, 1)
	other(t, b, p)
	if err := w.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.read(c, 1); err == nil {
		t.Fatal("the answer that is held has come")
	}
	if err := w.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	f.Release()
	w.answer(c, 1)
	w.answer(v, 2)
	noErrors(t, p)
}

// What is held goes where the proxy goes: Close does not hang.
func TestCloseDropsWhatIsHeld(t *testing.T) {
	for _, do := range []Action{HoldRequest, HoldAnswer, DuplicateLater} {
		t.Run(do.String(), func(t *testing.T) {
			b, p, f, w := inject(t, do)
			w.send(commit("in", at))
			wait(t, f, 1)
			p.Close()
			w.ends()
			if do == HoldRequest && seen(b, at) > 0 {
				t.Error("it has reached the broker")
			}
			if do == DuplicateLater && seen(b, at) > 1 {
				t.Error("the copy has reached the broker")
			}
			if err := f.Wait(limited(t), 2); err == nil || !strings.Contains(err.Error(), "closed") {
				t.Errorf("waiting after the end: %v", err)
			}
		})
	}
}

func TestDelay(t *testing.T) {
	const delay = 60 * time.Millisecond
	for _, do := range []Action{DelayRequest, DelayAnswer} {
		t.Run(do.String(), func(t *testing.T) {
			b, p := between(t, embedded.Topic("in", 1))
			f := Inject(t, p, Rule{Do: do, Delay: delay, Keys: []kmsg.Key{kmsg.OffsetCommit}})
			w := dial(t, p.Addrs()[0])
			w.ask(versions())
			start := time.Now()
			w.ask(commit("in", at))
			if took := time.Since(start); took < delay {
				t.Errorf("answered after %v", took)
			}
			c := b.Commits()[0]
			if late := c.Received.Sub(start) >= delay; late != (do == DelayRequest) {
				t.Errorf("the broker has got it after %v", c.Received.Sub(start))
			}
			if f.Hits() != 1 {
				t.Errorf("%d hits", f.Hits())
			}
			noErrors(t, p)
		})
	}
}

func TestDuplicate(t *testing.T) {
	b, p, _, w := inject(t, Duplicate)
	c, v := commit("in", at), versions()
	w.send(c)
	w.send(v)
	w.answer(c, 1)
	w.answer(v, 2) // that of the copy would be in between
	waitSeen(t, b, at, 2)
	noErrors(t, p)
}

// A copy that comes late is what sets a committed offset back.
func TestDuplicateLater(t *testing.T) {
	b, p, f, w := inject(t, DuplicateLater)
	w.ask(commit("in", at))
	w.ask(commit("in", at+1))
	if seen(b, at) != 1 {
		t.Fatalf("the broker has got it %d times", seen(b, at))
	}
	f.Release()
	waitSeen(t, b, at, 2)
	got, err := b.Committed(limited(t), "g", "in")
	if err != nil || got[0].Offset != at {
		t.Errorf("committed is %v, %v", got, err)
	}
	w.ask(versions()) // the answer of the copy does not disturb
	noErrors(t, p)
}

// The copy comes though its client has gone.
func TestDuplicateLaterOutlivesClient(t *testing.T) {
	b, p, f, w := inject(t, DuplicateLater)
	w.ask(commit("in", at))
	w.Close()
	other(t, b, p)
	f.Release()
	waitSeen(t, b, at, 2)
	noErrors(t, p)
}

func TestCopiesAreBounded(t *testing.T) {
	_, p := between(t, embedded.Topic("in", 1))
	Inject(t, p, Rule{Do: DuplicateLater, Keys: []kmsg.Key{kmsg.OffsetCommit}, Count: -1})
	w := dial(t, p.Addrs()[0])
	for i := range maxCopies {
		w.ask(commit("in", int64(i)))
	}
	w.send(commit("in", at))
	w.ends()
	if errs, _ := p.Errors(); len(errs) != 1 || !strings.Contains(errs[0].Error(), "copies") {
		t.Errorf("errors: %v", errs)
	}
}

func TestCutBefore(t *testing.T) {
	b, p, f, w := inject(t, CutBefore)
	w.ask(versions())
	w.send(commit("in", at))
	wait(t, f, 1)
	if n := w.ends(); n > 0 {
		t.Errorf("%d bytes of answers", n)
	}
	other(t, b, p)
	if seen(b, at) != 0 {
		t.Error("the broker has got it")
	}
	noErrors(t, p)
}

func TestCutAfter(t *testing.T) {
	b, p, f, w := inject(t, CutAfter)
	w.ask(versions())
	w.send(commit("in", at))
	wait(t, f, 1)
	if n := w.ends(); n > 0 {
		t.Errorf("%d bytes of answers", n)
	}
	waitSeen(t, b, at, 1)
	noErrors(t, p)
}

// A rule whose answer never comes is not used up.
func TestRuleIsGivenBack(t *testing.T) {
	b, p, f, w := inject(t, CutAfter)
	hold := Inject(t, p, Rule{Do: HoldRequest, Keys: []kmsg.Key{kmsg.OffsetCommit}})
	w.send(commit("in", at))
	wait(t, hold, 1)
	p.Cut()
	w.ends()
	w = dial(t, p.Addrs()[0])
	w.send(commit("in", at))
	wait(t, f, 1)
	w.ends()
	waitSeen(t, b, at, 1)
}

// Which requests a rule fits, one condition at a time.
func TestFits(t *testing.T) {
	b, p := between(t, embedded.Topic("in", 4), embedded.Topic("out", 4), embedded.Brokers(2))
	cl := client(t, b, p)
	ctx := limited(t)
	if err := cl.Ping(ctx); err != nil { // and topic ids are learnt
		t.Fatal(err)
	}
	req := kmsg.NewPtrMetadataRequest()
	if _, err := req.RequestWith(ctx, cl); err != nil {
		t.Fatal(err)
	}
	id := b.Cluster().TopicInfo("in").TopicID
	byID := func() kmsg.Request {
		c := commit("", at)
		c.SetVersion(10)
		c.Topics[0].TopicID = id
		return c
	}
	nameless := commit("in", at)
	nameless.Topics = nil
	for name, tt := range map[string]struct {
		rule Rule
		req  kmsg.Request
		fits bool
	}{
		"everything":              {Rule{}, versions(), true},
		"its key":                 {Rule{Keys: []kmsg.Key{kmsg.Fetch, kmsg.ApiVersions}}, versions(), true},
		"another key":             {Rule{Keys: []kmsg.Key{kmsg.Fetch}}, versions(), false},
		"its client":              {Rule{ClientID: "wire"}, versions(), true},
		"another client":          {Rule{ClientID: "wir"}, versions(), false},
		"its broker":              {Rule{Broker: b.Addrs()[0]}, versions(), true},
		"its broker as localhost": {Rule{Broker: strings.Replace(b.Addrs()[0], "127.0.0.1", "localhost", 1)}, versions(), true},
		"another broker":          {Rule{Broker: b.Addrs()[1]}, versions(), false},
		"its topic":               {Rule{Topics: []string{"out", "in"}}, commit("in", at), true},
		"another topic":           {Rule{Topics: []string{"out"}}, commit("in", at), false},
		"its topic by id":         {Rule{Topics: []string{"in"}}, byID(), true},
		"another topic by id":     {Rule{Topics: []string{"out"}}, byID(), false},
		"no topic":                {Rule{Topics: []string{"in"}}, nameless, false},
		"a request without any":   {Rule{Topics: []string{"in"}}, versions(), false},
		"when": {Rule{When: func(r kmsg.Request) bool { return r.(*kmsg.OffsetCommitRequest).Topics[0].Partitions[0].Offset == at }},
			commit("in", at), true},
		"when not":             {Rule{When: func(kmsg.Request) bool { return false }}, versions(), false},
		"all conditions":       {Rule{Keys: []kmsg.Key{kmsg.OffsetCommit}, ClientID: "wire", Topics: []string{"in"}}, commit("in", at), true},
		"all conditions but 1": {Rule{Keys: []kmsg.Key{kmsg.OffsetCommit}, ClientID: "me", Topics: []string{"in"}}, commit("in", at), false},
	} {
		t.Run(name, func(t *testing.T) {
			f := Inject(t, p, tt.rule)
			dial(t, p.Addrs()[0]).ask(tt.req)
			if got := f.Hits() == 1; got != tt.fits {
				t.Errorf("%d hits", f.Hits())
			}
		})
	}
	t.Run("connection", func(t *testing.T) {
		n := p.Connections()
		f := Inject(t, p, Rule{Connection: n + 2})
		one, two := dial(t, p.Addrs()[0]), (*wire)(nil)
		one.ask(versions())
		two = dial(t, p.Addrs()[1])
		if f.Hits() != 0 {
			t.Error("it acts on the first")
		}
		two.ask(versions())
		one.ask(versions())
		if f.Hits() != 1 || p.Connections() != n+2 {
			t.Errorf("%d hits, %d connections after %d", f.Hits(), p.Connections(), n)
		}
	})
	noErrors(t, p)
}

// After and Count: the n-th match, several, and all from then on.
func TestAfterAndCount(t *testing.T) {
	_, p := between(t)
	w := dial(t, p.Addrs()[0])
	for _, tt := range []struct{ after, count, of, want int }{{0, 0, 3, 1}, {0, 2, 3, 2}, {2, 1, 5, 1}, {2, -1, 5, 3}, {5, 1, 5, 0}} {
		f := Inject(t, p, Rule{After: tt.after, Count: tt.count})
		for i := range tt.of {
			if f.Hits() != 0 && i <= tt.after {
				t.Errorf("%+v: acts on number %d", tt, i)
			}
			w.ask(versions())
		}
		if f.Hits() != tt.want {
			t.Errorf("%+v: %d hits", tt, f.Hits())
		}
	}
}

func TestRemovedRuleDoesNothing(t *testing.T) {
	b, p, f, w := inject(t, CutBefore)
	f.Remove()
	f.Remove()
	w.ask(commit("in", at))
	if f.Hits() != 0 || seen(b, at) != 1 {
		t.Errorf("%d hits", f.Hits())
	}
	// It has been taken, and is removed before the answer comes.
	g := Inject(t, p, Rule{Do: DropAnswer, Keys: []kmsg.Key{kmsg.OffsetCommit}})
	hold := Inject(t, p, Rule{Do: HoldRequest, Keys: []kmsg.Key{kmsg.OffsetCommit}})
	c := commit("in", at+1)
	w.send(c)
	wait(t, hold, 1)
	g.Remove()
	hold.Remove()
	w.answer(c, 2)
}

// Rules act in order, and one that ends a request leaves it to no other, nor uses another up.
func TestRulesInOrder(t *testing.T) {
	b, p := between(t, embedded.Topic("in", 1))
	commits := []kmsg.Key{kmsg.OffsetCommit}
	early := Inject(t, p, Rule{Do: DropAnswer, Keys: commits, After: 1})
	cut := Inject(t, p, Rule{Do: CutBefore, Keys: commits, After: 1})
	all := Inject(t, p, Rule{Keys: commits, Count: -1})
	twice := Inject(t, p, Rule{Do: Duplicate, Keys: commits, After: 1})
	w := dial(t, p.Addrs()[0])
	w.ask(commit("in", at))
	w.send(commit("in", at+1))
	w.ends()
	if early.Hits() != 0 || cut.Hits() != 1 || all.Hits() != 1 || twice.Hits() != 0 || seen(b, at+1) != 0 {
		t.Errorf("hits %d, %d, %d, %d; the broker has got it %d times", early.Hits(), cut.Hits(), all.Hits(), twice.Hits(), seen(b, at+1))
	}
	w = dial(t, p.Addrs()[0])
	w.send(commit("in", at+2)) // number 2 for the last rule, 3 for the first, which was given back
	wait(t, early, 1)
	waitSeen(t, b, at+2, 2)
	if all.Hits() != 2 || twice.Hits() != 1 {
		t.Errorf("hits %d, %d", all.Hits(), twice.Hits())
	}
}

func TestWaitEnds(t *testing.T) {
	_, p := between(t)
	f := Inject(t, p, Rule{Do: DropAnswer, Keys: []kmsg.Key{kmsg.Heartbeat}})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := f.Wait(ctx, 1)
	if err == nil || !strings.Contains(err.Error(), "DropAnswer has acted on 0 requests of 1, and 0 fitted") || ctx.Err() == nil {
		t.Errorf("%v", err)
	}
}

func TestWrongRules(t *testing.T) {
	_, p := between(t)
	for _, tt := range []struct {
		rule Rule
		want []string
	}{
		{Rule{Do: 99}, []string{"Action(99)", "no action"}},
		{Rule{Do: DelayAnswer}, []string{"DelayAnswer", "above 0"}},
		{Rule{Do: Pass, Delay: 1}, []string{"Delay is 1ns", "Pass"}},
		{Rule{Keys: []kmsg.Key{kmsg.Heartbeat}, Topics: []string{"in"}}, []string{"Heartbeat", "names no topic"}},
		{Rule{Keys: []kmsg.Key{12345}, Topics: []string{"in"}}, []string{"12345", "cannot read"}},
		{Rule{Keys: []kmsg.Key{12345}, When: func(kmsg.Request) bool { return true }}, []string{"12345", "cannot read"}},
		{Rule{Topics: []string{""}}, []string{"empty name"}},
		{Rule{Connection: -1, After: -2}, []string{"Connection is -1", "After is -2"}},
		{Rule{Broker: "here"}, []string{`"here"`, "host:port"}},
	} {
		_, err := p.Inject(tt.rule)
		for _, w := range tt.want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%+v: %v has no %q", tt.rule, err, w)
			}
		}
	}
	if _, err := p.Inject(Rule{Keys: []kmsg.Key{12345}}); err != nil {
		t.Errorf("a key that kmsg does not know, by itself: %v", err)
	}
	p.Close()
	if _, err := p.Inject(Rule{}); err != ErrClosed {
		t.Errorf("after Close: %v", err)
	}
}

// A client of the usual kind meets the faults and comes through: what it produced is there once, in
// order, and its commit counts.
func TestClientComesThrough(t *testing.T) {
	for _, do := range []Action{DropRequest, DropAnswer, Duplicate, CutBefore, CutAfter} {
		t.Run(do.String(), func(t *testing.T) {
			b, p := between(t, embedded.Topic("in", 1))
			cl := client(t, b, p, kgo.ProduceRequestTimeout(100*time.Millisecond), kgo.RequestTimeoutOverhead(100*time.Millisecond), kgo.RetryTimeout(15*time.Second),
				kgo.DefaultProduceTopic("in"), kgo.AlwaysRetryEOF())
			f := Inject(t, p, Rule{Do: do, Keys: []kmsg.Key{kmsg.Produce}, Topics: []string{"in"}})
			for _, v := range []string{"a", "b"} {
				if err := cl.ProduceSync(limited(t), kgo.StringRecord(v)).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			got, err := b.ReadAll(limited(t), "in")
			if err != nil || len(got) != 2 || string(got[0].Value) != "a" || string(got[1].Value) != "b" {
				t.Errorf("%d records, %v", len(got), err)
			}
			if f.Hits() != 1 {
				t.Errorf("%d hits", f.Hits())
			}
		})
	}
}

// Produce with acks 0 has no answer, and leaves nothing behind that waits for one.
func TestWithoutAcks(t *testing.T) {
	b, p := between(t, embedded.Topic("in", 1))
	cl := client(t, b, p, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite(), kgo.DefaultProduceTopic("in"))
	const n = 2 * maxCalls
	for range n {
		if err := cl.ProduceSync(limited(t), kgo.StringRecord("a")).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for end := int64(0); end < n; {
		ends, err := b.End(limited(t), "in")
		if err != nil {
			t.Fatal(err)
		}
		end = ends[0].End
	}
	noErrors(t, p)
}

// The proxy's own words for errors of brokers are not ours to change.
func TestErrorsOfBrokersPass(t *testing.T) {
	b, p := between(t, embedded.Topic("in", 1))
	b.Fail(kmsg.OffsetCommit, kerr.CoordinatorNotAvailable, 1)
	w := dial(t, p.Addrs()[0])
	resp := w.ask(commit("in", at)).(*kmsg.OffsetCommitResponse)
	if code := resp.Topics[0].Partitions[0].ErrorCode; code != kerr.CoordinatorNotAvailable.Code {
		t.Errorf("code %d", code)
	}
}

// commitsOf is a rule for commits of positions in a topic.
func commitsOf(topic string, do Action, n int) Rule {
	return Rule{Do: do, Keys: []kmsg.Key{kmsg.OffsetCommit}, Topics: []string{topic}, Count: n}
}
