package faults

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What is wrong with a connection, in Proxy.Errors. The connection was closed; the rest of the proxy
// goes on. A test whose processes get killed sees ErrTruncated now and then, and ErrUnreachable while
// a broker is away.
var (
	// ErrFrame: what came is no frame of the Kafka protocol, or larger than ProxyConfig.MaxFrame.
	ErrFrame = errors.New("not a Kafka frame")
	// ErrTruncated: the sender has ended inside a frame.
	ErrTruncated = errors.New("the frame is cut off")
	// ErrAnswer: an answer to which there is no request, or that cannot be read although it has to be
	// (one that names brokers).
	ErrAnswer = errors.New("the answer cannot be understood")
	// ErrUnreachable: the broker did not accept a connection.
	ErrUnreachable = errors.New("the broker cannot be reached")
	// ErrUnsupported: something that the proxy cannot do, such as the SASL handshake of version 0.
	ErrUnsupported = errors.New("the proxy does not support it")
)

// ConnError is an entry of Proxy.Errors: what was wrong with one connection.
type ConnError struct {
	Broker     string // address of the broker
	Client     string // address of the client
	ClientID   string // what it calls itself; "" before its first request
	Connection int    // as in Rule.Connection
	Err        error  // wraps one of the errors above
}

func (e *ConnError) Error() string {
	return fmt.Sprintf("faults: connection %d of client %q (%s) to the broker at %s: %v", e.Connection, e.ClientID, e.Client, e.Broker, e.Err)
}

func (e *ConnError) Unwrap() error { return e.Err }

// frames reads length-prefixed frames. The buffer is used again for each.
type frames struct {
	r     *bufio.Reader
	max   int
	least int // no frame is shorter
	buf   []byte
}

const (
	readBuffer = 64 << 10
	// keepBuffer is the size above which a buffer is not kept for the next frame: one large answer must
	// not hold its memory for the life of the connection.
	keepBuffer = 1 << 20
)

// next returns a frame with its length in front, valid until the next call. io.EOF is an end between
// two frames.
func (f *frames) next() ([]byte, error) {
	if cap(f.buf) > keepBuffer {
		f.buf = nil
	}
	f.buf = append(f.buf[:0], 0, 0, 0, 0)
	if n, err := io.ReadFull(f.r, f.buf); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("%w: after %d bytes of its length", ErrTruncated, n)
		}
		return nil, err
	}
	size := int(int32(binary.BigEndian.Uint32(f.buf)))
	switch {
	case f.buf[0] == 0x15 && f.buf[1] == 3:
		return nil, fmt.Errorf("%w: it begins as a TLS alert does; is one side set to TLS and the other not?", ErrFrame)
	case size < f.least:
		return nil, fmt.Errorf("%w: its length is %d; the least is %d", ErrFrame, size, f.least)
	case size > f.max:
		return nil, fmt.Errorf("%w: its length is %d; ProxyConfig.MaxFrame is %d", ErrFrame, size, f.max)
	}
	// A length is a mere promise: memory is taken for what has come, and as much again.
	for want := 4 + size; len(f.buf) < want; {
		have := len(f.buf)
		step := min(want-have, max(have, readBuffer))
		f.buf = slices.Grow(f.buf, step)[:have+step]
		if n, err := io.ReadFull(f.r, f.buf[have:]); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return nil, fmt.Errorf("%w: after %d of %d bytes", ErrTruncated, have+n-4, size)
			}
			return nil, err
		}
	}
	return f.buf, nil
}

// header is what every request begins with.
type header struct {
	key      kmsg.Key
	version  int16
	corr     int32
	clientID []byte // of the frame
	known    bool   // kmsg knows the key
	flexible bool   // by KIP-482; false where the key is not known
	body     []byte // of the frame; where the key is not known: what follows the client id
}

// leastRequest is the length of the shortest header: key, version, correlation id.
const leastRequest = 8

// parse reads the header of a request from its frame.
func (h *header) parse(frame []byte, kinds kinds) error {
	r := kbin.Reader{Src: frame[4:]}
	*h = header{key: kmsg.Key(r.Int16()), version: r.Int16(), corr: r.Int32()}
	if h.key != kmsg.ControlledShutdown || h.version > 0 { // the one request without a client id
		h.clientID = shortBytes(&r)
	}
	if kind := kinds.of(h.key); kind != nil {
		h.known = true
		kind.SetVersion(h.version)
		if h.flexible = kind.IsFlexible(); h.flexible {
			kmsg.SkipTags(&r)
		}
	}
	if !r.Ok() {
		return fmt.Errorf("%w: the header of a request (%s, version %d) is longer than its frame of %d bytes", ErrFrame, name(h.key), h.version, len(frame)-4)
	}
	h.body = r.Src
	return nil
}

// decode reads the body of a request whose key is known.
func (h *header) decode() (kmsg.Request, error) {
	req := h.key.Request()
	req.SetVersion(h.version)
	// ReadFrom keeps slices of its input, which is used again.
	if err := req.ReadFrom(slices.Clone(h.body)); err != nil {
		return nil, fmt.Errorf("%w: %s request, version %d: %w", ErrFrame, name(h.key), h.version, err)
	}
	return req, nil
}

// unanswered reports whether the request is one that brokers do not answer: Produce with acks 0. Only
// the start of its body is looked at.
func (h *header) unanswered() bool {
	if h.key != kmsg.Produce {
		return false
	}
	r := kbin.Reader{Src: h.body}
	switch { // over the transactional id
	case h.flexible:
		r.CompactNullableBytes()
	case h.version >= 3:
		shortBytes(&r)
	}
	return r.Int16() == 0 && r.Ok()
}

// shortBytes reads a nullable string without a copy.
func shortBytes(r *kbin.Reader) []byte {
	n := r.Int16()
	if n < 0 {
		return nil
	}
	return r.Span(int(n))
}

// kinds are requests by key, to be asked for properties of a version only.
type kinds map[kmsg.Key]kmsg.Request

// of returns nil for a key that kmsg does not know.
func (k kinds) of(key kmsg.Key) kmsg.Request {
	req, ok := k[key]
	if !ok {
		req = key.Request()
		k[key] = req
	}
	return req
}

// name is a request's name, or its number if kmsg does not know it.
func name(key kmsg.Key) string {
	if n := key.Name(); n != "Unknown" {
		return n
	}
	return fmt.Sprintf("request key %d", int16(key))
}
