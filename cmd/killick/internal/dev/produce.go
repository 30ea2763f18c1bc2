package dev

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// maxLine is the longest line of input, in bytes: brokers take no longer records, unless told so.
	maxLine = 1 << 20
	// deliveryLimit bounds how long a record may take to be acknowledged.
	deliveryLimit = 20 * time.Second
)

// ErrInterrupted says that the context ended before the input did. What had been read was produced.
var ErrInterrupted = errors.New("interrupted")

// ProduceOptions say what Produce writes, and where.
type ProduceOptions struct {
	Kafka
	Topic string
	// KeySeparator parts a line into key and value, at its first occurrence. Default: no keys.
	KeySeparator string
	// Partition that all records go to, or -1: by key as Java's clients do it, or any.
	Partition int
	// Create makes the topic if it does not exist, with as many partitions as the broker gives one.
	Create bool
	// In has a record per line. A carriage return at the end is dropped, an empty line is an empty value.
	In io.Reader
	// Ready is called once, with the broker's address, when records are taken. Default: nothing.
	Ready func(where string)

	delivery time.Duration // Default: deliveryLimit.
}

// Produce writes records until the end of the input and returns how many are there for good.
func Produce(ctx context.Context, o ProduceOptions) (int, error) {
	if err := checkName(o.Topic); err != nil {
		return 0, wrong("topic %q: %w", o.Topic, err)
	}
	if o.delivery == 0 {
		o.delivery = deliveryLimit
	}
	opts := []kgo.Opt{kgo.DefaultProduceTopic(o.Topic), kgo.RecordDeliveryTimeout(o.delivery), kgo.ProducerLinger(5 * time.Millisecond)}
	if o.Partition >= 0 {
		opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	c, err := o.connect(ctx, opts...)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if err := c.ready(ctx, o); err != nil {
		return 0, err
	}
	if o.Ready != nil {
		o.Ready(c.where)
	}
	return c.produce(ctx, o)
}

// ready makes sure that topic and partition exist.
func (c *client) ready(ctx context.Context, o ProduceOptions) error {
	n, all, err := c.partitions(ctx, o.Topic)
	if err != nil {
		return err
	}
	if n == 0 && !o.Create {
		return c.noTopic(o.Topic, all, "; --create makes it")
	}
	if n == 0 {
		made, err := c.adm.CreateTopic(ctx, -1, -1, nil, o.Topic)
		if err == nil {
			err = made.Err
		}
		if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			return fmt.Errorf("dev: create topic %s at %s: %w", o.Topic, c.where, err)
		}
		if n, _, err = c.partitions(ctx, o.Topic); err != nil {
			return err
		}
	}
	if o.Partition >= n {
		return wrong("--partition %d: topic %s has %d partitions, 0 to %d", o.Partition, o.Topic, n, n-1)
	}
	return nil
}

// produce hands each line to the client as it comes and waits for all of them. The client holds a bounded number of
// records and makes the next one wait.
func (c *client) produce(ctx context.Context, o ProduceOptions) (int, error) {
	// A record that fails ends the reading.
	feed, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var mu sync.Mutex
	var good int
	var failed error // of the first record that failed
	lines, readErr := read(feed, o.In)
	err := func() error {
		for number := 1; ; number++ {
			var line []byte
			var ok bool
			select {
			case line, ok = <-lines:
			case <-feed.Done():
				return context.Cause(feed)
			}
			if !ok {
				return *readErr
			}
			r, err := o.record(line, number)
			if err != nil {
				return err
			}
			// What was read is sent, after an interrupt as well.
			c.Produce(context.WithoutCancel(ctx), r, func(_ *kgo.Record, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					good++
				} else if failed == nil {
					failed = fmt.Errorf("dev: line %d, to topic %s: %w", number, o.Topic, err)
					stop(failed)
				}
			})
		}
	}()
	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.delivery)
	defer cancel()
	ferr := c.Flush(flush)
	mu.Lock()
	defer mu.Unlock()
	if failed == nil && ferr != nil {
		failed = fmt.Errorf("dev: not all records were acknowledged by topic %s within %v: %w", o.Topic, o.delivery, ferr)
	}
	switch interrupted := isInterrupt(ctx, err); {
	case failed != nil && (interrupted || errors.Is(err, failed)): // an interrupt does not hide what is missing
		return good, failed
	case interrupted:
		return good, ErrInterrupted
	}
	return good, errors.Join(err, failed)
}

// record is what a line says.
func (o *ProduceOptions) record(line []byte, number int) (*kgo.Record, error) {
	r := &kgo.Record{Value: line, Partition: int32(max(o.Partition, 0))}
	if o.KeySeparator != "" {
		key, value, ok := bytes.Cut(line, []byte(o.KeySeparator))
		if !ok {
			return nil, wrong("--key-separator %q: line %d does not have it: %.60q; the lines before it were produced", o.KeySeparator, number, line)
		}
		r.Key, r.Value = key, value
	}
	return r, nil
}

// read takes lines from in on a goroutine of its own: a read of a terminal cannot be ended. The error may be looked at
// when the channel is closed.
func read(ctx context.Context, in io.Reader) (<-chan []byte, *error) {
	lines, failed := make(chan []byte), new(error)
	go func() {
		defer close(lines)
		s := bufio.NewScanner(in)
		s.Buffer(nil, maxLine+2)
		number := 0
		for s.Scan() {
			number++
			select {
			case lines <- bytes.Clone(s.Bytes()):
			case <-ctx.Done():
				return
			}
		}
		switch err := s.Err(); {
		case errors.Is(err, bufio.ErrTooLong):
			*failed = wrong("line %d is longer than %d bytes; the lines before it were produced", number+1, maxLine)
		case err != nil:
			*failed = fmt.Errorf("dev: read the input after line %d: %w", number, err)
		}
	}()
	return lines, failed
}
