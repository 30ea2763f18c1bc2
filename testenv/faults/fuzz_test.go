package faults

import (
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// FuzzFrames gives the proxy a client and a broker that send anything. It must not panic, nor take
// memory beyond what has come, and it must end.
func FuzzFrames(f *testing.F) {
	add := func(req kmsg.Request, resp kmsg.Response) {
		resp.SetVersion(req.GetVersion())
		header := []byte{0, 0, 0, 1}
		if resp.IsFlexible() && req.Key() != int16(kmsg.ApiVersions) {
			header = append(header, 0)
		}
		f.Add(kmsg.NewRequestFormatter(kmsg.FormatterClientID("fuzz")).AppendRequest(nil, req, 1), encodeAnswer(header, resp))
	}
	metadata := kmsg.NewPtrMetadataRequest()
	metadata.SetVersion(12)
	mr := kmsg.NewPtrMetadataResponse()
	mr.Brokers = []kmsg.MetadataResponseBroker{{Host: "127.0.0.1", Port: 1}}
	add(metadata, mr)
	fetch := kmsg.NewPtrFetchRequest()
	fetch.SetVersion(17)
	fr := kmsg.NewPtrFetchResponse()
	fr.Brokers = []kmsg.FetchResponseBroker{{Host: "127.0.0.1", Port: 1}}
	add(fetch, fr)
	add(commit("in", at), kmsg.NewPtrOffsetCommitResponse())
	add(versions(), kmsg.NewPtrApiVersionsResponse())
	f.Add([]byte{0x16, 3, 1, 0, 5}, []byte{0x15, 3, 3})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, []byte{0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, request, answer []byte) {
		p, err := NewProxy(ProxyConfig{Brokers: []string{"127.0.0.1:1"}, MaxFrame: 1 << 20})
		if err != nil {
			t.Skip(err) // no descriptors left
		}
		defer p.Close()
		for _, r := range []Rule{{Topics: []string{"in"}, Count: -1}, {Do: Duplicate, Keys: []kmsg.Key{kmsg.OffsetCommit}, Count: -1},
			{Do: DelayAnswer, Delay: time.Microsecond, Keys: []kmsg.Key{kmsg.Metadata}, Count: -1}} {
			if _, err := p.Inject(r); err != nil {
				t.Fatal(err)
			}
		}
		client, cl := net.Pipe()
		broker, br := net.Pipe()
		c := newConn(p.seeds[0], cl, 1)
		if !c.connected(br) {
			t.Fatal("not connected")
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var all sync.WaitGroup
		all.Go(func() { c.report(c.requests(br)); c.close() })
		all.Go(func() { c.report(c.answers(br)); c.close() })
		all.Go(func() { _, _ = io.Copy(io.Discard, client) })
		all.Go(func() {
			_, _ = client.Write(request)
			client.Close()
		})
		all.Go(func() {
			_, _ = io.CopyN(io.Discard, broker, int64(len(request)))
			_, _ = broker.Write(answer)
			broker.Close()
		})
		all.Wait()
		c.close()
		c.finish()
		runtime.ReadMemStats(&after)
		// What kmsg makes of an array has up to some 200 bytes for each byte of it.
		if got := after.TotalAlloc - before.TotalAlloc; got > 8<<20+uint64(1000*(len(request)+len(answer))) {
			t.Errorf("%d bytes taken for %d and %d", got, len(request), len(answer))
		}
	})
}
