package faults

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Answers that a client gets other than the broker gave them. Those of Kafka that carry addresses of
// brokers are all of
//
//	Metadata, FindCoordinator, DescribeCluster               always
//	Fetch, Produce (KIP-951), ShareFetch, ShareAcknowledge   the new leader, in answers of newer versions
//
// (others name listeners of controllers, or hosts of users: not what clients connect to). ApiVersions is
// held to the versions that kmsg can read, so that there is no answer above that it cannot rewrite.

// readsAnswer reports whether answers of the kind are looked into.
func readsAnswer(key kmsg.Key, version int16) bool {
	switch key {
	case kmsg.Metadata, kmsg.FindCoordinator, kmsg.DescribeCluster, kmsg.ApiVersions, kmsg.ShareFetch, kmsg.ShareAcknowledge:
		return true
	case kmsg.Produce: // from the first version with tags on, of which one has them
		return version >= 9
	case kmsg.Fetch:
		return version >= 12
	case kmsg.CreateTopics:
		return version >= 7 // has topic ids
	}
	return false
}

// parseAnswer splits an answer's frame: header is the correlation id and the tags behind it.
func parseAnswer(frame []byte, resp kmsg.Response) (header, body []byte, err error) {
	r := kbin.Reader{Src: frame[4:]}
	r.Int32()
	// The one answer whose header has no tags in any version, so that clients can read it before they
	// know what the broker speaks (KIP-511).
	if resp.IsFlexible() && kmsg.Key(resp.Key()) != kmsg.ApiVersions {
		kmsg.SkipTags(&r)
	}
	if !r.Ok() {
		return nil, nil, fmt.Errorf("%w: %s, version %d: its header is longer than its frame of %d bytes", ErrAnswer, name(kmsg.Key(resp.Key())), resp.GetVersion(), len(frame)-4)
	}
	return frame[4 : len(frame)-len(r.Src)], r.Src, nil
}

// decodeAnswer reads an answer.
func decodeAnswer(frame []byte, key kmsg.Key, version int16) (resp kmsg.Response, header []byte, err error) {
	resp = key.Response()
	resp.SetVersion(version)
	if key == kmsg.ApiVersions && len(frame) >= 10 && int16(binary.BigEndian.Uint16(frame[8:])) == kerr.UnsupportedVersion.Code {
		resp.SetVersion(0) // a broker that does not know the version answers so
	}
	header, body, err := parseAnswer(frame, resp)
	if err != nil {
		return nil, nil, err
	}
	// ReadFrom keeps slices of its input; nobody keeps the answer longer than its frame.
	if err := resp.ReadFrom(body); err != nil {
		return nil, nil, fmt.Errorf("%w: %s, version %d: %w", ErrAnswer, name(key), version, err)
	}
	return resp, header, nil
}

// encodeAnswer makes a frame of an answer.
func encodeAnswer(header []byte, resp kmsg.Response) []byte {
	out := append(make([]byte, 4, 4+len(header)+256), header...)
	out = resp.AppendTo(out)
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	return out
}

// rewrite returns the frame with addresses of the proxy in place of the brokers', and learns from it
// what node has which address, and which topic which id. The frame is returned as it is if nothing in it
// is to be changed.
func (p *Proxy) rewrite(frame []byte, key kmsg.Key, version int16) ([]byte, error) {
	resp, header, err := decodeAnswer(frame, key, version)
	if err != nil {
		return nil, err
	}
	var changed bool
	var errs []error
	address := func(node int32, host *string, port *int32) {
		if *host == "" || *port <= 0 {
			return // FindCoordinator has none beside an error
		}
		l, err := p.linkTo(*host, *port)
		if err != nil {
			errs = append(errs, err)
			return
		}
		l.node.Store(node)
		*host, *port, changed = loopback, int32(l.port), true
	}
	p.topics.learnAll(resp)
	switch resp := resp.(type) {
	case *kmsg.MetadataResponse:
		for i := range resp.Brokers {
			b := &resp.Brokers[i]
			address(b.NodeID, &b.Host, &b.Port)
		}
	case *kmsg.FindCoordinatorResponse:
		address(resp.NodeID, &resp.Host, &resp.Port)
		for i := range resp.Coordinators {
			c := &resp.Coordinators[i]
			address(c.NodeID, &c.Host, &c.Port)
		}
	case *kmsg.DescribeClusterResponse:
		for i := range resp.Brokers {
			b := &resp.Brokers[i]
			address(b.NodeID, &b.Host, &b.Port)
		}
	case *kmsg.ProduceResponse:
		for i := range resp.Brokers {
			b := &resp.Brokers[i]
			address(b.NodeID, &b.Host, &b.Port)
		}
	case *kmsg.FetchResponse:
		for i := range resp.Brokers {
			b := &resp.Brokers[i]
			address(b.NodeID, &b.Host, &b.Port)
		}
	case *kmsg.ShareFetchResponse:
		for i := range resp.NodeEndpoints {
			n := &resp.NodeEndpoints[i]
			address(n.NodeID, &n.Host, &n.Port)
		}
	case *kmsg.ShareAcknowledgeResponse:
		for i := range resp.NodeEndpoints {
			n := &resp.NodeEndpoints[i]
			address(n.NodeID, &n.Host, &n.Port)
		}
	case *kmsg.ApiVersionsResponse:
		changed = limitVersions(resp)
	}
	if err := errors.Join(errs...); err != nil || !changed {
		return frame, err
	}
	return encodeAnswer(header, resp), nil
}

// limitVersions leaves no version that kmsg cannot read, and no key of which it could read none. Keys
// that it does not know stay: they are passed as they are.
func limitVersions(resp *kmsg.ApiVersionsResponse) (changed bool) {
	resp.ApiKeys = slices.DeleteFunc(resp.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool {
		kind := kmsg.RequestForKey(k.ApiKey)
		if kind == nil || k.MinVersion <= kind.MaxVersion() {
			return false
		}
		changed = true
		return true
	})
	for i := range resp.ApiKeys {
		k := &resp.ApiKeys[i]
		if kind := kmsg.RequestForKey(k.ApiKey); kind != nil && k.MaxVersion > kind.MaxVersion() {
			k.MaxVersion, changed = kind.MaxVersion(), true
		}
	}
	return changed
}
