package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// contents reads a topic of a running broker to its end, as partition|key|value.
func contents(t *testing.T, b *Broker, topic string) []string {
	t.Helper()
	rs, err := b.emb.ReadAll(limited(t), topic)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range rs {
		key := "nil"
		if r.Key != nil {
			key = fmt.Sprintf("%q", r.Key)
		}
		value := "nil"
		if r.Value != nil {
			value = fmt.Sprintf("%q", r.Value)
		}
		out = append(out, fmt.Sprintf("%d|%s|%s", r.Partition, key, value))
	}
	return out
}

func TestProduce(t *testing.T) {
	t.Parallel()
	b := start(t, Options{Topics: []Topic{{"plain", 1}, {"keyed", 3}, {"third", 3}}})
	at := Kafka{Bootstrap: b.Address()}
	for _, tt := range []struct {
		o    ProduceOptions
		in   string
		want []string
	}{
		{ProduceOptions{Topic: "plain", Partition: -1}, "Ada\r\n\n a b \nGrace", []string{`0|nil|"Ada"`, `0|nil|""`, `0|nil|" a b "`, `0|nil|"Grace"`}},
		// Java: the key 21 is in partition 0 of 3.
		{ProduceOptions{Topic: "keyed", Partition: -1, KeySeparator: "=>"}, "21=>v\n21=>=>\n21=>\n", []string{`0|"21"|"v"`, `0|"21"|"=>"`, `0|"21"|""`}},
		{ProduceOptions{Topic: "third", Partition: 2}, "x\n", []string{`2|nil|"x"`}},
		{ProduceOptions{Topic: "new", Partition: 3, Create: true}, "x\n", []string{`3|nil|"x"`}},
		{ProduceOptions{Topic: "third", Partition: 1, Create: true}, "y\n", []string{`1|nil|"y"`, `2|nil|"x"`}},
	} {
		tt.o.Kafka, tt.o.In = at, strings.NewReader(tt.in)
		where := ""
		tt.o.Ready = func(s string) { where += s }
		n, err := Produce(limited(t), tt.o)
		if err != nil || where != b.Address() {
			t.Errorf("%s: %d, %v, ready at %q", tt.o.Topic, n, err, where)
		}
		if got := contents(t, b, tt.o.Topic); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.o.Topic, got, tt.want)
		}
	}
}

// TestProduceMistakes: each is named, nothing is made, and what came before a bad line is there.
func TestProduceMistakes(t *testing.T) {
	t.Parallel()
	b := start(t, Options{Topics: []Topic{{"names", 2}}})
	at := Kafka{Bootstrap: b.Address()}
	long := strings.Repeat("x", maxLine+3)
	for _, tt := range []struct {
		o    ProduceOptions
		in   string
		n    int
		want string
	}{
		{ProduceOptions{Kafka: at, Topic: "nmaes", Partition: -1}, "x", 0, `topic "nmaes" does not exist at ` + b.Address() + " (there are: names); --create makes it"},
		{ProduceOptions{Kafka: at, Topic: "a/b", Partition: -1, Create: true}, "x", 0, `topic "a/b"`},
		{ProduceOptions{Kafka: at, Topic: "names", Partition: 2}, "x", 0, "--partition 2: topic names has 2 partitions, 0 to 1"},
		{ProduceOptions{Kafka: at, Topic: "names", Partition: -1, KeySeparator: ":"}, "k:v\nv\nk:w\n", 1, `--key-separator ":": line 2`},
		{ProduceOptions{Kafka: at, Topic: "names", Partition: -1}, "a\nb\n" + long, 2, "line 3 is longer than 1048576 bytes"},
		{ProduceOptions{Kafka: Kafka{Bootstrap: "nowhere"}, Topic: "names", Partition: -1}, "x", 0, `"nowhere" has no port`},
		{ProduceOptions{Kafka: Kafka{Folder: t.TempDir()}, Topic: "names", Partition: -1}, "x", 0, "no killick dev runs"},
		{ProduceOptions{Kafka: Kafka{}, Topic: "names", Partition: -1}, "x", 0, "no killick dev runs"},
	} {
		tt.o.In = strings.NewReader(tt.in)
		n, err := Produce(limited(t), tt.o)
		if n != tt.n || !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %d records, %.200v; want %d and ErrUsage with %q", tt.o.Topic, n, err, tt.n, tt.want)
		}
	}
	if n, all, err := open(t, b).partitions(limited(t), "nmaes"); n != 0 || len(all) != 1 || err != nil {
		t.Errorf("the mistyped topic has %d partitions; topics %v, %v", n, all, err)
	}
	// Too large for the broker, and so for the client: that is no wrong call, but told by its line all the same.
	o := ProduceOptions{Kafka: at, Topic: "names", Partition: 0, In: strings.NewReader("a\n" + strings.Repeat("x", maxLine))}
	if n, err := Produce(limited(t), o); n != 1 || err == nil || !strings.Contains(err.Error(), "line 2, to topic names") {
		t.Errorf("%d records, %v; want 1 and an error about line 2", n, err)
	}
}

// refuses is an address where nothing listens.
func refuses(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	for _, k := range []Kafka{
		{Bootstrap: refuses(t)},
		{Environ: []string{EnvBootstrap + "=" + refuses(t)}},
	} {
		_, err := Produce(limited(t), ProduceOptions{Kafka: k, Topic: "names", Partition: -1, In: strings.NewReader("x")})
		if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "127.0.0.1:") {
			t.Errorf("produce: %v; want ErrUnreachable with the address", err)
		}
		_, err = Consume(limited(t), ConsumeOptions{Kafka: k, Topic: "names", Out: io.Discard})
		if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "127.0.0.1:") {
			t.Errorf("consume: %v; want ErrUnreachable with the address", err)
		}
	}
}

// TestWhere: the flag counts before the environment, and that before a broker that is announced.
func TestWhere(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	flag, env, found := start(t, Options{}), start(t, Options{}), start(t, Options{Folder: folder})
	environ := []string{EnvBootstrap + "=" + env.Address()}
	// Credentials are for the broker that the environment is about.
	secret := []string{EnvBootstrap + "=", "KILLICK_KAFKA__SECURITY_PROTOCOL=ssl"}
	for _, tt := range []struct {
		k    Kafka
		want *Broker
	}{
		{Kafka{Bootstrap: flag.Address(), Environ: environ, Folder: folder}, flag},
		{Kafka{Environ: environ, Folder: folder}, env},
		{Kafka{Environ: secret, Folder: folder}, found},
		{Kafka{Folder: folder}, found},
	} {
		n, err := Produce(limited(t), ProduceOptions{Kafka: tt.k, Topic: "t", Partition: -1, Create: true, In: strings.NewReader("x")})
		if n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if got := contents(t, tt.want, "t"); len(got) == 0 {
			t.Errorf("%+v: the record is not at %s", tt.k, tt.want.Address())
		}
	}
	if n := len(contents(t, found, "t")); n != 2 {
		t.Errorf("%d records at the broker that was found, want 2", n)
	}
}

// TestProduceInterruptedWithoutBroker: an interrupt while the broker is away does not hide what was read and
// is not there.
func TestProduceInterruptedWithoutBroker(t *testing.T) {
	t.Parallel()
	b, err := Start(limited(t), Options{Topics: []Topic{{"names", 1}}})
	if err != nil {
		t.Fatal(err)
	}
	in, typed := io.Pipe()
	defer typed.Close() // ends the reader's goroutine
	ctx, interrupt := context.WithCancel(limited(t))
	defer interrupt()
	o := ProduceOptions{Kafka: Kafka{Bootstrap: b.Address()}, Topic: "names", Partition: -1, In: in, delivery: time.Second}
	o.Ready = func(string) {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	go func() {
		for _, line := range []string{"Ada\n", "Grace\n"} { // the second is read when the first was taken
			if _, err := io.WriteString(typed, line); err != nil {
				t.Error(err)
			}
		}
		interrupt()
	}()
	n, err := Produce(ctx, o)
	if n != 0 || err == nil || errors.Is(err, ErrInterrupted) || !strings.Contains(err.Error(), "names") {
		t.Errorf("%d, %v; want none, and an error that says what is missing", n, err)
	}
}

// TestProduceInterrupt: what was read is there, and an interrupt ends the wait for more. It is there before the input ends:
// somebody may be typing.
func TestProduceInterrupt(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	b := start(t, Options{Folder: folder, Topics: []Topic{{"names", 1}}})
	in, typed := io.Pipe()
	defer typed.Close() // ends the reader's goroutine
	ctx, interrupt := context.WithCancel(limited(t))
	defer interrupt()
	type result struct {
		n   int
		err error
	}
	done := make(chan result, 1)
	go func() {
		n, err := Produce(ctx, ProduceOptions{Kafka: Kafka{Folder: folder}, Topic: "names", Partition: -1, In: in})
		done <- result{n, err}
	}()
	if _, err := io.WriteString(typed, "Ada\nGra"); err != nil {
		t.Fatal(err)
	}
	if n, err := Consume(limited(t), ConsumeOptions{Kafka: Kafka{Folder: folder}, Topic: "names", Count: 1, Out: io.Discard}); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	interrupt()
	if got := <-done; got.n != 1 || !errors.Is(got.err, ErrInterrupted) {
		t.Errorf("%d, %v; want 1 and ErrInterrupted", got.n, got.err)
	}
	if got := contents(t, b, "names"); !slices.Equal(got, []string{`0|nil|"Ada"`}) {
		t.Errorf("%q", got)
	}
}
