package faults

import (
	"context"
	"encoding/binary"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DialFunc connects to a broker, as kgo.Dialer wants it.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// Dialer is a dial function for a client whose commits of offsets are to be noted: each position before
// its request leaves, and each answer before the client has it. What the client does otherwise is passed
// untouched. dial is the function below it; it does TLS, if there is any. Default: net.Dialer's.
//
//	kgo.Dialer(log.Dialer(nil))
//
// A connection fails when the event file takes no more lines.
func (l *Log) Dialer(dial DialFunc) DialFunc {
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return watch(c, l), nil
	}
}

// watched is a client's connection. The client writes from one goroutine at a time, and reads from one.
type watched struct {
	net.Conn
	log     *Log
	kinds   kinds // of the writer
	out, in splitter

	mu    sync.Mutex
	calls map[int32]watchedCall // requests whose answers are of interest, by correlation id
}

type watchedCall struct {
	key     kmsg.Key
	version int16
	commit  *committing // nil: it is Metadata, which names topics
}

func watch(c net.Conn, log *Log) net.Conn {
	w := &watched{Conn: c, log: log, kinds: kinds{}, calls: map[int32]watchedCall{}}
	w.out = splitter{peek: leastRequest, want: w.wantRequest, frame: w.request}
	w.in = splitter{peek: 4, want: w.wantAnswer, frame: w.answer}
	return w
}

func (w *watched) Write(p []byte) (int, error) {
	if err := w.out.feed(p); err != nil {
		return 0, err
	}
	return w.Conn.Write(p)
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if ferr := w.in.feed(p[:n]); ferr != nil {
		return 0, ferr
	}
	return n, err
}

func (w *watched) wantRequest(head []byte) bool {
	key := kmsg.Key(binary.BigEndian.Uint16(head))
	return isCommit(key) || key == kmsg.Metadata
}

func (w *watched) wantAnswer(head []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.calls[int32(binary.BigEndian.Uint32(head))]
	return ok
}

func (w *watched) request(frame []byte) error {
	var h header
	if err := h.parse(frame, w.kinds); err != nil {
		return err
	}
	x := watchedCall{key: h.key, version: h.version}
	if isCommit(h.key) {
		req, err := h.decode()
		if err != nil {
			return err
		}
		if x.commit, err = noteCommit(w.log, &w.log.topics, req, ""); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[h.corr] = x
	return nil
}

func (w *watched) answer(frame []byte) error {
	corr := int32(binary.BigEndian.Uint32(frame[4:]))
	w.mu.Lock()
	x := w.calls[corr]
	delete(w.calls, corr)
	w.mu.Unlock()
	resp, _, err := decodeAnswer(frame, x.key, x.version)
	if err != nil {
		return err
	}
	if x.commit != nil {
		return x.commit.answered(resp)
	}
	w.log.topics.learnAll(resp)
	return nil
}

// splitter cuts a stream that passes by into frames. Those that want declines after their first peek
// bytes are skipped without a copy.
type splitter struct {
	peek  int
	want  func(head []byte) bool
	frame func(frame []byte) error // with the length in front; valid for the call

	buf  []byte // of the frame so far, its length included
	left int    // bytes of it still to come, once its length is known
	skip bool
}

func (s *splitter) feed(p []byte) error {
	for len(p) > 0 {
		if s.skip {
			n := min(s.left, len(p))
			p, s.left = p[n:], s.left-n
			s.skip = s.left > 0
			continue
		}
		// Up to where something is to be decided: the length, the head, the end.
		n := 4 - len(s.buf)
		switch {
		case len(s.buf) >= 4+s.peek:
			n = s.left
		case len(s.buf) >= 4:
			n = min(s.left, 4+s.peek-len(s.buf))
		}
		n = min(n, len(p))
		head := len(s.buf) >= 4
		s.buf = append(s.buf, p[:n]...)
		p = p[n:]
		switch {
		case head:
			s.left -= n
		case len(s.buf) == 4:
			s.left = max(0, int(int32(binary.BigEndian.Uint32(s.buf))))
		default:
			return nil
		}
		switch {
		case len(s.buf) == 4 && s.left < s.peek: // no frame that could be of interest
			s.skip, s.buf = s.left > 0, s.buf[:0]
		case len(s.buf) == 4+s.peek && !s.want(s.buf[4:]):
			s.skip, s.buf = s.left > 0, s.buf[:0]
		case len(s.buf) > 4 && s.left == 0:
			err := s.frame(s.buf)
			if s.buf = s.buf[:0]; cap(s.buf) > keepBuffer {
				s.buf = nil
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
