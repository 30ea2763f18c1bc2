package dev

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// idle is how long nothing may come before the broker is asked whether it is still there: a fetch alone would be tried
	// for ever.
	idle = 3 * time.Second
	// commitLimit bounds one commit, after an interrupt as well.
	commitLimit = 5 * time.Second
)

// ConsumeOptions say what Consume prints.
type ConsumeOptions struct {
	Kafka
	Topic string
	// Latest begins with what comes from now on; default is the beginning. A group goes on where it is.
	Latest bool
	// Count is how many records are printed. 0: until the context ends.
	Count int
	// Group whose committed offsets follow what was printed. Default: none, nothing is committed.
	Group string
	// Format of a record.
	Format Format
	Out    io.Writer
	// Ready is called once, with the broker's address, when it is known where reading begins: what is produced from then on
	// is printed. (With a group, when it is about to be joined.) Default: nothing.
	Ready func(where string)

	idle time.Duration // Default: idle.
}

// Consume prints records, those of one partition in order, until Count or until the context ends, which is no error. It
// returns how many it printed. Records of open and aborted transactions are not printed.
func Consume(ctx context.Context, o ConsumeOptions) (int, error) {
	if err := checkName(o.Topic); err != nil {
		return 0, wrong("topic %q: %w", o.Topic, err)
	}
	if o.idle == 0 {
		o.idle = idle
	}
	n, err := consume(ctx, o)
	if isInterrupt(ctx, err) {
		err = nil
	}
	return n, err
}

func consume(ctx context.Context, o ConsumeOptions) (int, error) {
	where, opts, err := o.options(ctx)
	if err != nil {
		return 0, err
	}
	c, err := dial(ctx, where, opts)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	n, all, err := c.partitions(ctx, o.Topic)
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, c.noTopic(o.Topic, all, "")
	}
	reading, err := c.from(ctx, o)
	if err != nil {
		return 0, err
	}
	r, err := dial(ctx, where, append(append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(250*time.Millisecond)), reading...))
	if err != nil {
		return 0, err
	}
	defer r.CloseAllowingRebalance()
	if o.Ready != nil {
		o.Ready(where)
	}
	return r.print(ctx, o)
}

// from are the options of the client that reads.
func (c *client) from(ctx context.Context, o ConsumeOptions) ([]kgo.Opt, error) {
	if o.Group != "" {
		start := kgo.NewOffset().AtStart()
		if o.Latest {
			start = kgo.NewOffset().AtEnd()
		}
		return []kgo.Opt{kgo.ConsumerGroup(o.Group), kgo.ConsumeTopics(o.Topic), kgo.ConsumeStartOffset(start), kgo.ConsumeResetOffset(start),
			kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll()}, nil
	}
	// Offsets are asked for now: the end at the first fetch might be a later one.
	ask := c.adm.ListStartOffsets
	if o.Latest {
		ask = c.adm.ListEndOffsets
	}
	listed, err := ask(ctx, o.Topic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("dev: offsets of topic %s at %s: %w", o.Topic, c.where, err)
	}
	at := map[int32]kgo.Offset{}
	listed.Each(func(l kadm.ListedOffset) { at[l.Partition] = kgo.NewOffset().At(l.Offset) })
	return []kgo.Opt{kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{o.Topic: at}),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}, nil // what retention took meanwhile
}

// print polls and prints. Of a group, what is printed is committed before anything else is asked for.
func (c *client) print(ctx context.Context, o ConsumeOptions) (n int, err error) {
	out := bufio.NewWriter(o.Out)
	for o.Count == 0 || n < o.Count {
		most := 1000
		if o.Count > 0 {
			most = min(most, o.Count-n)
		}
		poll, cancel := context.WithTimeout(ctx, o.idle)
		fetches := c.PollRecords(poll, most)
		cancel()
		for r := range fetches.RecordsAll() {
			if err := o.Format.write(out, r); err != nil {
				return n, fmt.Errorf("dev: print a record: %w", err)
			}
			n++
		}
		if err := out.Flush(); err != nil {
			return n, fmt.Errorf("dev: print a record: %w", err)
		}
		if o.Group != "" {
			if err := c.commit(ctx, o, fetches.NumRecords()); err != nil {
				return n, err
			}
			c.AllowRebalance()
		}
		if ctx.Err() != nil {
			return n, context.Cause(ctx)
		}
		for _, f := range fetches.Errors() {
			switch {
			case errors.Is(f.Err, context.DeadlineExceeded):
			case errors.Is(f.Err, kerr.InconsistentGroupProtocol):
				return n, wrong("--group %s: it has members at %s that share out partitions in another way, as workers of killick do: name another group (%w)", o.Group, c.where, f.Err)
			default:
				return n, fmt.Errorf("dev: read topic %s of %s: %w", o.Topic, c.where, f.Err)
			}
		}
		if fetches.NumRecords() == 0 {
			if err := c.reach(ctx); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

func (c *client) commit(ctx context.Context, o ConsumeOptions, records int) error {
	if records == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitLimit)
	defer cancel()
	if err := c.CommitUncommittedOffsets(ctx); err != nil {
		return fmt.Errorf("dev: commit what was printed, as group %s: %w", o.Group, err)
	}
	return nil
}
