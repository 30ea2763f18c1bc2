package faults

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// frame puts a length before a body.
func frame(body ...byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// Hostile clients: their connection ends with an error that says what was wrong, and nothing else ends.
func TestHostileClients(t *testing.T) {
	flexible := kmsg.NewRequestFormatter(kmsg.FormatterClientID("evil")).AppendRequest(nil, commit("in", at), 1)
	for name, tt := range map[string]struct {
		bytes []byte
		is    error
		says  string
	}{
		"negative length":          {[]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}, ErrFrame, "length is -1"},
		"no length":                {[]byte{0, 0, 0, 0}, ErrFrame, "length is 0"},
		"too short for a header":   {frame(0, 0, 0, 0, 0, 0, 0), ErrFrame, "length is 7; the least is 8"},
		"longer than allowed":      {[]byte{0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0}, ErrFrame, "MaxFrame"},
		"text":                     {[]byte("GET / HTTP/1.1\r\n\r\n"), ErrFrame, "MaxFrame"},
		"length cut off":           {[]byte{0, 0, 1}, ErrTruncated, "3 bytes of its length"},
		"body cut off":             {append(frame(make([]byte, 20)...)[:10], 1), ErrTruncated, "7 of 20 bytes"},
		"body missing":             {[]byte{0, 0, 1, 0}, ErrTruncated, "0 of 256 bytes"},
		"client id past the end":   {frame(0, 18, 0, 0, 0, 0, 0, 1, 0x7f, 0xff, 'a'), ErrFrame, "ApiVersions, version 0"},
		"client id missing":        {frame(0, 18, 0, 0, 0, 0, 0, 1), ErrFrame, "header"},
		"client id of an unknown":  {frame(0x30, 0, 0, 0, 0, 0, 0, 1, 0, 9), ErrFrame, "request key 12288"},
		"tags past the end":        {frame(0, 18, 0, 3, 0, 0, 0, 1, 0xff, 0xff, 200), ErrFrame, "ApiVersions, version 3"},
		"many tags":                {frame(0, 18, 0, 3, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f), ErrFrame, "ApiVersions"},
		"a body that cannot be":    {frame(0, 8, 0, 2, 0, 0, 0, 1, 0xff, 0xff, 0x7f, 0xff), ErrFrame, "OffsetCommit request, version 2"},
		"an array that cannot be":  {cutArray(flexible), ErrFrame, "OffsetCommit request, version 9"},
		"negative version of one":  {frame(0, 8, 0xff, 0xff, 0, 0, 0, 1, 0xff, 0xff, 0x7f, 0xff), ErrFrame, "OffsetCommit request, version -1"},
		"SASL of the oldest kind":  {frame(0, 17, 0, 0, 0, 0, 0, 1, 0xff, 0xff, 0, 5, 'P', 'L', 'A', 'I', 'N'), ErrUnsupported, "version 1"},
		"TLS where none is spoken": {[]byte{0x15, 3, 3, 0, 2, 2, 40, 0}, ErrFrame, "TLS alert"},
	} {
		t.Run(name, func(t *testing.T) {
			_, p := between(t)
			// So that commits are looked into.
			Inject(t, p, Rule{Keys: []kmsg.Key{kmsg.OffsetCommit}, Topics: []string{"in"}, Count: -1})
			bystander := dial(t, p.Addrs()[0])
			bystander.ask(versions())
			w := dial(t, p.Addrs()[0])
			if _, err := w.Write(tt.bytes); err != nil {
				t.Fatal(err)
			}
			if err := w.Conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if n := w.ends(); n > 0 {
				t.Errorf("%d bytes of an answer", n)
			}
			errs, _ := p.Errors()
			var ce *ConnError
			if len(errs) != 1 || !errors.Is(errs[0], tt.is) || !errors.As(errs[0], &ce) || !strings.Contains(errs[0].Error(), tt.says) {
				t.Fatalf("errors %v, want %v with %q", errs, tt.is, tt.says)
			}
			if ce.Connection != 2 || ce.Client != w.LocalAddr().String() || ce.Broker == "" {
				t.Errorf("%+v", ce)
			}
			bystander.ask(versions())
		})
	}
}

// cutArray makes an array of topics in a commit as long as no request can be.
func cutArray(req []byte) []byte {
	i := bytes.Index(req, []byte{2, 3, 'i', 'n'}) // one topic, whose name has two bytes
	out := append(append(bytes.Clone(req[:i]), 0xff, 0xff, 0xff, 0xff, 0x0f), req[i+1:]...)
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	return out
}

// Hostile brokers: the same, in the other direction.
func TestHostileBrokers(t *testing.T) {
	metadata := kmsg.NewPtrMetadataRequest()
	metadata.SetVersion(9)
	for name, tt := range map[string]struct {
		req    kmsg.Request
		answer []byte
		is     error
		says   string
	}{
		"negative length":       {versions(), []byte{0x80, 0, 0, 0}, ErrFrame, "length is -2147483648"},
		"too short":             {versions(), frame(0, 0, 0), ErrFrame, "length is 3; the least is 4"},
		"too long":              {versions(), []byte{0x7f, 0, 0, 0}, ErrFrame, "MaxFrame"},
		"cut off":               {versions(), []byte{0, 0, 1, 0, 0, 0}, ErrTruncated, "2 of 256"},
		"TLS alert":             {versions(), []byte{0x15, 3, 3, 0, 2, 2, 40}, ErrFrame, "TLS"},
		"another request's":     {versions(), frame(0, 0, 0, 9), ErrAnswer, "correlation id 9"},
		"nothing in it":         {versions(), frame(0, 0, 0, 1), ErrAnswer, "ApiVersions"},
		"tags past the end":     {metadata, frame(0, 0, 0, 1, 1, 1, 200), ErrAnswer, "Metadata, version 9"},
		"metadata cut off":      {metadata, frame(0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0), ErrAnswer, "Metadata, version 9"},
		"brokers without end":   {metadata, frame(0, 0, 0, 1, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f), ErrAnswer, "Metadata"},
		"another one unchanged": {commit("in", at), frame(0, 0, 0, 1, 0xff, 0xff, 0xff), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var broker sync.WaitGroup
			broker.Go(func() {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				if _, err := c.Read(make([]byte, 1<<10)); err != nil {
					return
				}
				if _, err := c.Write(tt.answer); err == nil {
					_ = c.(*net.TCPConn).CloseWrite()
					_, _ = io.Copy(io.Discard, c)
				}
			})
			t.Cleanup(func() { ln.Close(); broker.Wait() })
			p := StartProxy(t, ln.Addr().String())
			w := dial(t, p.Addrs()[0])
			w.send(tt.req)
			n := w.ends()
			errs, _ := p.Errors()
			if tt.is == nil {
				if n != len(tt.answer) || len(errs) != 0 {
					t.Errorf("%d bytes, errors %v", n, errs)
				}
				return
			}
			if n > 0 {
				t.Errorf("%d bytes of it", n)
			}
			if len(errs) != 1 || !errors.Is(errs[0], tt.is) || !strings.Contains(errs[0].Error(), tt.says) {
				t.Errorf("errors %v, want %v with %q", errs, tt.is, tt.says)
			}
		})
	}
}

// A cluster of more brokers than any has is not believed: each would get a listener.
func TestTooManyBrokers(t *testing.T) {
	_, p := between(t)
	resp := kmsg.NewPtrMetadataResponse()
	resp.SetVersion(9)
	p.mu.Lock()
	for len(p.links) < maxLinks {
		p.links[strings.Repeat("x", len(p.links)+1)] = p.seeds[0]
	}
	p.mu.Unlock()
	resp.Brokers = append(resp.Brokers, kmsg.MetadataResponseBroker{Host: "127.0.0.1", Port: 1})
	if _, err := p.rewrite(encodeAnswer([]byte{0, 0, 0, 1, 0}, resp), kmsg.Metadata, 9); err == nil || !strings.Contains(err.Error(), "too many") {
		t.Errorf("%v", err)
	}
}

// What a frame announces is not taken from memory before it comes.
func TestLengthsAreMerePromises(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 10 {
		f := frames{r: bufio.NewReaderSize(bytes.NewReader([]byte{0x07, 0xff, 0xff, 0xff, 1, 2, 3}), 16), max: math.MaxInt32, least: 4}
		if _, err := f.next(); !errors.Is(err, ErrTruncated) {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 4<<20 {
		t.Errorf("%d bytes for 10 frames of 3 bytes that announce 128 MiB", got)
	}
}

// Frames of all sizes come out as they went in, and a large one does not keep its memory.
func TestFrames(t *testing.T) {
	var in bytes.Buffer
	sizes := []int{4, 5, readBuffer - 4, readBuffer - 3, readBuffer, 3*readBuffer + 1, 2 * keepBuffer, 4}
	for i, n := range sizes {
		in.Write(frame(bytes.Repeat([]byte{byte(i)}, n)...))
	}
	f := frames{r: bufio.NewReader(&in), max: 4 << 20, least: 4}
	for i, n := range sizes {
		got, err := f.next()
		if err != nil || !bytes.Equal(got, frame(bytes.Repeat([]byte{byte(i)}, n)...)) {
			t.Fatalf("frame %d: %d bytes, %v", i, len(got), err)
		}
	}
	if cap(f.buf) > keepBuffer {
		t.Errorf("%d bytes are kept", cap(f.buf))
	}
	if _, err := f.next(); err != io.EOF {
		t.Errorf("the end: %v", err)
	}
}
