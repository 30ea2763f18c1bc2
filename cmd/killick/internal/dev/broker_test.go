package dev

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/killick-io/killick/worker"
)

func TestParseTopics(t *testing.T) {
	got, err := ParseTopics("names:2, greetings,a.b_c-D:1000")
	if want := []Topic{{"names", 2}, {"greetings", 0}, {"a.b_c-D", 1000}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	_, err = ParseTopics("ok:1,:3,a:0,b:x,c:1001,d:-1,a/b,..,ok," + strings.Repeat("x", 250))
	if !errors.Is(err, ErrUsage) {
		t.Fatalf("%v is no ErrUsage", err)
	}
	for _, want := range []string{`":3": a topic needs a name`, `"a:0"`, `"b:x"`, `"c:1001"`, `"d:-1"`, `'/' is not allowed`, `".."`, `"ok": the topic is given twice`, "250 characters"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nlacks %s", err, want)
		}
	}
	if strings.Contains(err.Error(), "ok:1") {
		t.Errorf("%v\nnames what is right", err)
	}
}

// ask is a metadata request as killick sends it: without permission to create.
func ask(t *testing.T, c *client, topic string) int {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(limited(t), c.Client)
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Topics) != 1 {
		t.Fatalf("%d topics in the answer", len(resp.Topics))
	}
	return len(resp.Topics[0].Partitions)
}

// TestTopics: those that are named are there, those that are asked for come, with few exceptions.
func TestTopics(t *testing.T) {
	t.Parallel()
	log := newBuffer()
	b := start(t, Options{Topics: []Topic{{"two", 2}, {"some", 0}}, Partitions: 3, Log: log})
	c := open(t, b)
	for _, tt := range []struct {
		topic string
		want  int
	}{
		{"two", 2}, {"some", 3}, {"asked", 3}, {"asked", 3},
		{"names.hello.dlq", 0}, {"killick.x", 0}, {"__offsets", 0}, {"a/b", 0},
	} {
		if got := ask(t, c, tt.topic); got != tt.want {
			t.Errorf("topic %s has %d partitions, want %d", tt.topic, got, tt.want)
		}
	}
	log.wait(t, "topic asked made, with 3 partitions")
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d lines in %q, want that one", n, log)
	}
	// The name differs from another one's in a way that Kafka's metrics would not show.
	if got := ask(t, c, "as_ked"); got != 3 {
		t.Errorf("as_ked has %d partitions", got)
	}
	if got := ask(t, c, "as.ked"); got != 0 {
		t.Errorf("as.ked has %d partitions, beside as_ked", got)
	}
	log.wait(t, "topic as.ked, which cannot be made")

	c = open(t, start(t, Options{NoCreate: true}))
	if got := ask(t, c, "asked"); got != 0 {
		t.Errorf("with NoCreate the topic has %d partitions", got)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		o    Options
		want string
	}{
		{Options{Port: -1}, "--port -1"},
		{Options{Port: 65536}, "--port 65536"},
		{Options{Partitions: -2}, "--partitions -2"},
		{Options{Partitions: 1001}, "--partitions 1001"},
		{Options{Data: folder}, "--data " + folder + ": the folder has files"},
		{Options{Data: file}, "--data " + file},
		{Options{Topics: []Topic{{"a", 1}, {"b", 1}, {"a", 2}}}, "--topics: topic a is given twice"},
		{Options{Topics: []Topic{{"a.b", 1}, {"a_b", 1}}}, "--topics a_b"},
	} {
		b, err := Start(limited(t), tt.o)
		if err == nil {
			b.Close()
		}
		if !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v; want ErrUsage with %q", tt.o, err, tt.want)
		}
	}
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	_, err = Start(limited(t), Options{Port: port})
	if !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), fmt.Sprintf("--port %d: cannot listen", port)) || !strings.Contains(err.Error(), "--port 0 a free one") {
		t.Errorf("%v; want ErrUsage that names the port and the way out", err)
	}
}

// TestData: records stay, one broker has them at a time, and a topic cannot change its partitions.
func TestData(t *testing.T) {
	t.Parallel()
	ctx := limited(t)
	folder, data := t.TempDir(), filepath.Join(t.TempDir(), "new", "data")
	o := Options{Folder: folder, Data: data, Topics: []Topic{{"kept", 2}}}
	b, err := Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	n, err := Produce(ctx, ProduceOptions{Kafka: Kafka{Bootstrap: b.Address()}, Topic: "kept", Partition: 1, In: strings.NewReader("one\ntwo")})
	if n != 2 || err != nil {
		t.Errorf("%d records, %v", n, err)
	}
	if _, err := Start(ctx, o); !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), b.Address()) || !strings.Contains(err.Error(), data) {
		t.Errorf("the folder is in use: %v; want ErrUsage that says by whom", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	o.Topics = []Topic{{"kept", 3}}
	if _, err := Start(ctx, o); !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), "--topics kept:3") || !strings.Contains(err.Error(), "it has 2 partitions") {
		t.Errorf("%v; want ErrUsage that names both numbers", err)
	}
	o.Topics = []Topic{{"kept", 0}, {"more", 1}}
	b = start(t, o)
	var out strings.Builder
	n, err = Consume(ctx, ConsumeOptions{Kafka: Kafka{Folder: folder}, Topic: "kept", Count: 2, Out: &out})
	if n != 2 || err != nil || out.String() != "one\ntwo\n" {
		t.Errorf("%d records, %v: %q", n, err, &out)
	}
	if n, _, err := open(t, b).partitions(ctx, "more"); n != 1 || err != nil {
		t.Errorf("the new topic has %d partitions, %v", n, err)
	}
}

// TestDataOfASilentBroker: one that is stopped (Ctrl-Z) or hangs answers nobody, and has its folder open
// all the same; and so has one that could not announce itself.
func TestDataOfASilentBroker(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("folders are not locked there")
	}
	ctx := limited(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") // connects, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, folder := range map[string]string{"announced": t.TempDir(), "not announced": ""} {
		data, want := filepath.Join(t.TempDir(), "data"), "another process has it open and does not answer"
		first, err := Start(ctx, Options{Data: data})
		if err != nil {
			t.Fatal(err)
		}
		if folder != "" {
			if _, err := write(folder, announcement{Address: l.Addr().String(), PID: 4711, Cluster: "x", Data: first.o.Data}); err != nil {
				t.Fatal(err)
			}
			want = "killick dev at " + l.Addr().String() + ", process 4711, has it open and does not answer"
		}
		second, err := Start(ctx, Options{Folder: folder, Data: data})
		if !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), "--data "+first.o.Data+": "+want) {
			t.Errorf("%s: %v; want ErrUsage that says %q", name, err, want)
		}
		if second != nil {
			second.Close()
		}
		if err := first.Close(); err != nil {
			t.Error(err)
		}
		start(t, Options{Folder: folder, Data: data}) // it is free again
	}
}

// TestFind: the newest broker that runs, whatever else lies around.
func TestFind(t *testing.T) {
	t.Parallel()
	ctx := limited(t)
	folder := filepath.Join(t.TempDir(), "cache")
	if got := Find(ctx, folder); got != "" {
		t.Errorf("found %s in no folder", got)
	}
	first := start(t, Options{Folder: folder})
	second, err := Start(ctx, Options{Folder: folder})
	if err != nil {
		t.Fatal(err)
	}
	if got := Find(ctx, folder); got != second.Address() {
		t.Errorf("found %s, want the newest, %s", got, second.Address())
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	// What killed brokers leave: nothing listens, or somebody else does. And files of others.
	other := start(t, Options{})
	var stale []string
	for _, a := range []announcement{
		{Address: second.Address(), Cluster: "x", Started: first.started(t).Add(1)},
		{Address: other.Address(), Cluster: "x", Started: first.started(t).Add(2)},
	} {
		file, err := write(folder, a)
		if err != nil {
			t.Fatal(err)
		}
		stale = append(stale, file)
	}
	for name, text := range map[string]string{"dev-1.json": "no JSON", "dev-2.json": "{}", "config.json": "{}"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := Find(ctx, folder); got != first.Address() {
		t.Errorf("found %s, want the one that runs, %s", got, first.Address())
	}
	start(t, Options{Folder: folder})
	for _, file := range stale {
		if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", file, err)
		}
	}
	if _, err := os.Stat(first.file); err != nil {
		t.Errorf("the announcement of a running broker is gone: %v", err)
	}
	if half, err := filepath.Glob(filepath.Join(folder, ".dev-*")); len(half) > 0 || err != nil {
		t.Errorf("left behind: %q, %v", half, err)
	}
	// Somebody cleans the cache: Close of first, at the end of the test, takes no offence.
	if err := os.Remove(first.file); err != nil {
		t.Error(err)
	}
}

// started is what the broker's announcement says.
func (b *Broker) started(t *testing.T) (at time.Time) {
	t.Helper()
	for _, a := range announcements(b.o.Folder) {
		if a.file == b.file {
			return a.Started
		}
	}
	t.Fatalf("no announcement %s", b.file)
	return at
}

// TestNoHome: without a place for announcements there is a broker all the same.
func TestNoHome(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	log := newBuffer()
	b := start(t, Options{Folder: filepath.Join(file, "killick"), Log: log})
	log.wait(t, "cannot be found without its address")
	open(t, b)
}

// TestEnviron: a worker that is started beside the broker talks to it, whatever was set before.
func TestEnviron(t *testing.T) {
	t.Parallel()
	b := start(t, Options{})
	env := b.Environ([]string{"A=b", EnvBootstrap + "=elsewhere:1", "KAFKA_BOOTSTRAP_SERVERS=elsewhere:1", "KILLICK_GROUP=g",
		"KILLICK_KAFKA__SECURITY_PROTOCOL=sasl_ssl", "KILLICK_KAFKA__SASL__MECHANISM=PLAIN", "KILLICK_KAFKA__SASL__USER=u",
		"KILLICK_KAFKA__SASL__PASSWORD=p", "KILLICK_KAFKA__TLS__CA_FILE=/nowhere"})
	if want := []string{"A=b", "KILLICK_GROUP=g", EnvBootstrap + "=" + b.Address(), "KAFKA_BOOTSTRAP_SERVERS=" + b.Address()}; !slices.Equal(env, want) {
		t.Errorf("%q, want %q", env, want)
	}
	c, err := worker.Load(nil, env)
	if err != nil || !slices.Equal(c.Bootstrap, []string{b.Address()}) || c.Group != "g" {
		t.Errorf("a worker reads %v, %q, %v", c.Bootstrap, c.Group, err)
	}
}

// TestClientsOfTheirOwn: a group member and a producer of kgo, which do not ask for topics to be made, get on.
func TestClientsOfTheirOwn(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(limited(t))
	defer cancel()
	b := start(t, Options{})
	in := open(t, b, kgo.ConsumerGroup("g"), kgo.ConsumeTopics("fresh"), kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()))
	out := open(t, b, kgo.DefaultProduceTopic("fresh"))
	if err := out.ProduceSync(ctx, kgo.StringRecord("v")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	for {
		fs := in.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}
		if fs.NumRecords() == 1 {
			return
		}
	}
}
