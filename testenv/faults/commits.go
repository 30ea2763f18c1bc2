package faults

import (
	"encoding/hex"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// committing is a request that commits offsets, as it was noted, and waits for its answer.
type committing struct {
	log     *Log
	places  []place // by position
	commits []Commit
}

// place names a position in a request and in its answer: by name or by id, the same in both.
type place struct {
	topic     string
	id        [16]byte
	partition int32
}

// isCommit reports whether requests of the kind commit offsets.
func isCommit(key kmsg.Key) bool { return key == kmsg.OffsetCommit || key == kmsg.TxnOffsetCommit }

// noteCommit notes the positions of a commit that is about to be sent.
func noteCommit(log *Log, known *topics, req kmsg.Request, client string) (*committing, error) {
	c := &committing{log: log}
	base := Commit{Client: client, Request: log.Request()}
	add := func(topic string, id [16]byte, partition int32, next int64, meta *string) {
		c.places = append(c.places, place{topic, id, partition})
		x := base
		x.Topic, x.Partition, x.Next = topic, partition, next
		if topic == "" {
			if x.Topic = known.name(id); x.Topic == "" {
				x.Topic = hex.EncodeToString(id[:]) // no topic that this client has asked for
			}
		}
		if meta != nil {
			x.Metadata = *meta
		}
		c.commits = append(c.commits, x)
	}
	switch req := req.(type) {
	case *kmsg.OffsetCommitRequest:
		base.Group, base.Member, base.Generation = req.Group, req.MemberID, req.Generation
		for _, t := range req.Topics {
			for _, p := range t.Partitions {
				add(t.Topic, t.TopicID, p.Partition, p.Offset, p.Metadata)
			}
		}
	case *kmsg.TxnOffsetCommitRequest:
		base.Group, base.Member, base.Generation, base.Txn = req.Group, req.MemberID, req.Generation, req.TransactionalID
		for _, t := range req.Topics {
			for _, p := range t.Partitions {
				add(t.Topic, t.TopicID, p.Partition, p.Offset, p.Metadata)
			}
		}
	}
	for _, x := range c.commits {
		if err := log.Commit(x); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// answered notes the answer. A position that it leaves out stays without one.
func (c *committing) answered(resp kmsg.Response) error {
	codes := map[place]int16{}
	switch resp := resp.(type) {
	case *kmsg.OffsetCommitResponse:
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				codes[place{t.Topic, t.TopicID, p.Partition}] = p.ErrorCode
			}
		}
	case *kmsg.TxnOffsetCommitResponse:
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				codes[place{t.Topic, t.TopicID, p.Partition}] = p.ErrorCode
			}
		}
	}
	for i, x := range c.commits {
		code, ok := codes[c.places[i]]
		if !ok {
			continue
		}
		x.Metadata = ""
		switch ke := kerr.TypedErrorForCode(code); {
		case code == 0:
		case ke == nil || ke.Code != code: // newer than kerr
			x.Error = fmt.Sprintf("ERROR_%d", code)
		default:
			x.Error = ke.Message
		}
		if err := c.log.Committed(x); err != nil {
			return err
		}
	}
	return nil
}
