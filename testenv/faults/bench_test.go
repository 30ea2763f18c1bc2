package faults

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick/testenv/embedded"
)

// BenchmarkProduce is what the proxy costs a producer of records of 1,000 bytes, on a broker that does not keep them.
func BenchmarkProduce(b *testing.B) {
	for _, way := range []string{"direct", "proxy"} {
		b.Run(way, func(b *testing.B) {
			broker := embedded.Start(b, embedded.Topic("in", 8), embedded.Kfake(kfake.BlackholeProduce()))
			addrs := broker.Addrs()
			if way == "proxy" {
				addrs = StartProxy(b, addrs...).Addrs()
			}
			cl, err := kgo.NewClient(broker.ClientOpts(kgo.SeedBrokers(addrs...), kgo.DefaultProduceTopic("in"), kgo.ProducerBatchCompression(kgo.NoCompression()))...)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(cl.Close)
			value := make([]byte, 1000)
			b.SetBytes(int64(len(value)))
			for b.Loop() {
				cl.Produce(context.Background(), &kgo.Record{Value: value}, nil)
			}
			if err := cl.Flush(context.Background()); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkProxy is the way of one request and its answer, one at a time.
func BenchmarkProxy(b *testing.B) {
	for _, way := range []string{"direct", "proxy", "proxy with rules"} {
		for _, size := range []int{100, 100_000} {
			b.Run(fmt.Sprintf("%s/%d B", way, size), func(b *testing.B) {
				// A broker of its own would cost more than what is measured: an echo that answers each
				// request with as many bytes.
				addr := echo(b)
				if way != "direct" {
					p := StartProxy(b, addr)
					if way == "proxy with rules" {
						for range 10 {
							if _, err := p.Inject(Rule{Keys: []kmsg.Key{kmsg.Heartbeat}, Count: -1}); err != nil {
								b.Fatal(err)
							}
						}
						if _, err := p.Inject(Rule{Keys: []kmsg.Key{kmsg.OffsetCommit}, Count: -1}); err != nil {
							b.Fatal(err)
						}
					}
					addr = p.Addrs()[0]
				}
				w := dial(b, addr)
				if err := w.SetDeadline(time.Time{}); err != nil {
					b.Fatal(err)
				}
				req := commit("in", at)
				req.Group = strings.Repeat("g", size)
				frame := w.f.AppendRequest(nil, req, 1)
				back := make([]byte, len(frame))
				b.SetBytes(int64(2 * len(frame)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := w.Write(frame); err != nil {
						b.Fatal(err)
					}
					if _, err := io.ReadFull(w.r, back); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// echo answers each request with a frame of the same length.
func echo(b *testing.B) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	var all sync.WaitGroup
	b.Cleanup(func() { ln.Close(); all.Wait() })
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				buf := make([]byte, 1<<20)
				for {
					if _, err := io.ReadFull(c, buf[:4]); err != nil {
						return
					}
					n := int(buf[0])<<24 | int(buf[1])<<16 | int(buf[2])<<8 | int(buf[3])
					if _, err := io.ReadFull(c, buf[4:4+n]); err != nil {
						return
					}
					copy(buf[4:8], buf[8:12]) // the correlation id
					if _, err := c.Write(buf[:4+n]); err != nil {
						return
					}
				}
			})
		}
	})
	return ln.Addr().String()
}
