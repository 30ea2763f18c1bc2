package faults

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/killick-io/killick/testenv/embedded"
)

// Every test of the package must leave no goroutine behind.
func TestMain(m *testing.M) {
	if role := Role(); role != "" {
		os.Exit(childMain(role))
	}
	goleak.VerifyTestMain(m)
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// limited is a context that ends long after anything here should take.
func limited(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// between starts a broker and a proxy before it.
func between(t testing.TB, opts ...embedded.Option) (*embedded.Broker, *Proxy) {
	t.Helper()
	b := embedded.Start(t, opts...)
	return b, StartProxy(t, b.Addrs()...)
}

// client is one that knows the brokers through the proxy only.
func client(t testing.TB, b *embedded.Broker, p *Proxy, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(b.ClientOpts(append([]kgo.Opt{kgo.SeedBrokers(p.Addrs()...)}, opts...)...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// noErrors says that the proxy has nothing to complain about.
func noErrors(t testing.TB, p *Proxy) {
	t.Helper()
	if errs, n := p.Errors(); len(errs) != 0 || n != 0 {
		t.Errorf("the proxy has errors, %d forgotten: %v", n, errs)
	}
}

// wire is a client that sends what a test says, byte by byte if it has to be.
type wire struct {
	testing.TB
	net.Conn
	r    *bufio.Reader
	f    *kmsg.RequestFormatter
	corr int32
}

func dial(t testing.TB, addr string) *wire {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &wire{TB: t, Conn: nc, r: bufio.NewReader(nc), f: kmsg.NewRequestFormatter(kmsg.FormatterClientID("wire"))}
}

func (w *wire) send(req kmsg.Request) {
	w.Helper()
	w.corr++
	if _, err := w.Write(w.f.AppendRequest(nil, req, w.corr)); err != nil {
		w.Fatal(err)
	}
}

// answer reads the answer to a request; corr is that of the request, counted from 1.
func (w *wire) answer(req kmsg.Request, corr int32) kmsg.Response {
	w.Helper()
	resp, err := w.read(req, corr)
	if err != nil {
		w.Fatal(err)
	}
	return resp
}

func (w *wire) read(req kmsg.Request, corr int32) (kmsg.Response, error) {
	f := frames{r: w.r, max: 1 << 30, least: 4}
	frame, err := f.next()
	if err != nil {
		return nil, err
	}
	resp, header, err := decodeAnswer(frame, kmsg.Key(req.Key()), req.GetVersion())
	if err != nil {
		return nil, err
	}
	if got := int32(header[0])<<24 | int32(header[1])<<16 | int32(header[2])<<8 | int32(header[3]); got != corr {
		return nil, errors.New("an answer to another request")
	}
	return resp, nil
}

func (w *wire) ask(req kmsg.Request) kmsg.Response {
	w.Helper()
	w.send(req)
	return w.answer(req, w.corr)
}

// ends reads until the other side closes, and reports how many bytes came before.
func (w *wire) ends() int {
	w.Helper()
	n, err := io.Copy(io.Discard, w.r)
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		w.Fatal("the connection is still there")
	}
	return int(n)
}

// commit is a request that needs no member, and whose effect shows.
func commit(topic string, offset int64) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.SetVersion(9)
	req.Group = "g"
	req.Generation = -1
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewOffsetCommitRequestTopicPartition()
	rp.Offset = offset
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

// seen is how often the broker has got a commit of the offset.
func seen(b *embedded.Broker, offset int64) (n int) {
	for _, c := range b.Commits() {
		if c.Offset == offset {
			n++
		}
	}
	return n
}

// waitSeen waits until the broker has answered n commits of the offset.
func waitSeen(t testing.TB, b *embedded.Broker, offset int64, n int) {
	t.Helper()
	_, err := b.WaitCommits(limited(t), func(cs []embedded.Commit) bool {
		k := 0
		for _, c := range cs {
			if c.Offset == offset && c.Accepted() {
				k++
			}
		}
		return k == n
	})
	if err != nil {
		t.Fatalf("the broker has not got %d commits of offset %d: %v", n, offset, err)
	}
}

// versions is a request without consequences.
func versions() kmsg.Request {
	req := kmsg.NewPtrApiVersionsRequest()
	req.SetVersion(3)
	req.ClientSoftwareName, req.ClientSoftwareVersion = "wire", "1"
	return req
}
