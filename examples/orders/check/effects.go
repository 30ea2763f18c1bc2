package check

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const (
	// originHeader is on every notification: "topic/partition/offset" of the order that it is about.
	originHeader = "order-origin"

	dlqTopic     = "killick-dlq-topic"
	dlqPartition = "killick-dlq-partition"
	dlqOffset    = "killick-dlq-offset"
	// ownPrefix begins the headers that killick adds to a dead letter; all others are the record's own.
	ownPrefix = "killick-"
)

// outputs assigns each notification to its input by the origin header and compares what it says.
func (c *checker) outputs() {
	c.r.Notifications = len(c.h.Outputs)
	for k := range c.h.Outputs {
		out := &c.h.Outputs[k]
		where := fmt.Sprintf("output %s-%d@%d", out.Topic, out.Partition, out.Offset)
		if out.Topic != c.h.OutputTopic {
			c.violate(Unknown, -1, "%s is not of topic %q", where, c.h.OutputTopic)
			continue
		}
		origin, n := header(out.Headers, originHeader)
		i, ok := c.origin(strings.Split(origin, "/"))
		if n != 1 || !ok {
			c.violate(Unknown, -1, "%s: %d headers %s, value %q: want one that names an input", where, n, originHeader, origin)
			continue
		}
		r := &c.roots[i]
		r.outs = append(r.outs, position{out.Partition, out.Offset})
		c.judge(i, out, where)
	}
}

// judge compares one notification with what its root asks for. The first rule that is broken is named.
func (c *checker) judge(i int, out *Record, where string) {
	r := &c.roots[i]
	var got notification
	err := strictJSON(out.Value, &got)
	switch _, known := c.byOrder[got.Order]; {
	case r.want.dead():
		c.violate(WrongWay, i, "%s: %q, want a dead letter and no notification", where, out.Value)
	case err != nil:
		c.violate(Altered, i, "%s: %q is no notification: %v", where, out.Value, err)
	case got.Order != r.want.order.ID && known:
		c.violate(Swap, i, "%s carries the content of order %d", where, got.Order)
	case got.Order != r.want.order.ID:
		c.violate(Unknown, i, "%s tells of order %d, which is in no input", where, got.Order)
	case !same(out.Key, r.in.Key):
		c.violate(Swap, i, "%s has the key %q, want %q", where, out.Key, r.in.Key)
	case got.Customer != r.want.order.Customer || got.Item != r.want.order.Item || got.Cents != r.want.order.Cents:
		c.violate(Altered, i, "%s: got %+v, want %+v", where, got, r.want.notification())
	case got.Status != r.want.status:
		c.violate(WrongWay, i, "%s: status %q, want %q", where, got.Status, r.want.status)
	}
}

// deadLetters assigns each dead letter to its input by the origin headers and compares the bytes.
func (c *checker) deadLetters() {
	c.r.DeadLetters = len(c.h.DeadLetters)
	for k := range c.h.DeadLetters {
		d := &c.h.DeadLetters[k]
		where := fmt.Sprintf("dead letter %s-%d@%d", d.Topic, d.Partition, d.Offset)
		if d.Topic != c.h.DeadLetterTopic {
			c.violate(DeadLetterExtra, -1, "%s is not of topic %q", where, c.h.DeadLetterTopic)
			continue
		}
		topic, n1 := header(d.Headers, dlqTopic)
		partition, n2 := header(d.Headers, dlqPartition)
		offset, n3 := header(d.Headers, dlqOffset)
		i, ok := c.origin([]string{topic, partition, offset})
		if !ok || n1 != 1 || n2 != 1 || n3 != 1 {
			c.violate(DeadLetterAltered, -1, "%s: origin %q/%q/%q (%d, %d and %d headers %s, -partition, -offset): want one each, and an input there",
				where, topic, partition, offset, n1, n2, n3, dlqTopic)
			continue
		}
		r := &c.roots[i]
		r.dead = append(r.dead, position{d.Partition, d.Offset})
		if !r.want.dead() {
			c.violate(DeadLetterExtra, i, "%s, want a notification %q and no dead letter", where, r.want.status)
			continue
		}
		var diff []string
		if !same(d.Key, r.in.Key) {
			diff = append(diff, fmt.Sprintf("key %q, want %q", d.Key, r.in.Key))
		}
		if !same(d.Value, r.in.Value) {
			diff = append(diff, fmt.Sprintf("value %q, want %q", d.Value, r.in.Value))
		}
		own := slices.DeleteFunc(slices.Clone(d.Headers), func(h Header) bool { return strings.HasPrefix(h.Key, ownPrefix) })
		if !slices.EqualFunc(own, r.in.Headers, func(a, b Header) bool { return a.Key == b.Key && same(a.Value, b.Value) }) {
			diff = append(diff, fmt.Sprintf("own headers %q, want %q", own, r.in.Headers))
		}
		if !d.Time.IsZero() && !r.in.Time.IsZero() && d.Time.UnixMilli() != r.in.Time.UnixMilli() {
			diff = append(diff, fmt.Sprintf("timestamp %v, want %v", d.Time, r.in.Time))
		}
		if diff != nil {
			c.violate(DeadLetterAltered, i, "%s: %s", where, strings.Join(diff, "; "))
		}
	}
}

// origin finds the input that {topic, partition, offset} name.
func (c *checker) origin(parts []string) (int, bool) {
	if len(parts) != 3 || parts[0] != c.h.InputTopic {
		return 0, false
	}
	p, err1 := strconv.ParseInt(parts[1], 10, 32)
	o, err2 := strconv.ParseInt(parts[2], 10, 64)
	if err1 != nil || err2 != nil {
		return 0, false
	}
	i, ok := c.at[position{int32(p), o}]
	return i, ok
}

// header is the first value of a header and how many there are.
func header(hs []Header, key string) (value string, n int) {
	for _, h := range hs {
		if h.Key != key {
			continue
		}
		if n == 0 {
			value = string(h.Value)
		}
		n++
	}
	return value, n
}

// same tells nil from empty, as Kafka does.
func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }
