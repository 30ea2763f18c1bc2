package killick

import (
	"time"

	"github.com/killick-io/killick/internal/core"
)

// Header is one record header. Order and duplicates are kept.
type Header struct {
	Key   string
	Value []byte
}

// Message is what a component emits: Bytes, or a Value for the stream's codec. Both set
// is a permanent failure of the input, neither is a null value. A nil Key and an empty
// one are different, and so are nil and empty Bytes. A []byte in Value counts as Bytes.
// Everything that a Message refers to belongs to killick once it is emitted, and is
// shared: do not change it.
type Message struct {
	Key     []byte
	Bytes   []byte
	Value   any
	Headers []Header
	// Time is the record's timestamp, in milliseconds when it leaves the process.
	// Default: the input's.
	Time time.Time
}

// size estimates the bytes that m holds, for the limit on one execution's outputs. What a Value
// other than bytes and text takes is not known; it counts as a message only.
func (m *Message) size() int {
	n := len(m.Key) + len(m.Bytes) + 64
	switch v := m.Value.(type) {
	case nil:
	case []byte:
		n += len(v)
	case string:
		n += len(v)
	}
	for i := range m.Headers {
		n += len(m.Headers[i].Key) + len(m.Headers[i].Value)
	}
	return n
}

func fromCore(hs []core.Header) []Header {
	if hs == nil {
		return nil
	}
	out := make([]Header, len(hs))
	for i, h := range hs {
		out[i] = Header(h)
	}
	return out
}
