package dev

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/twmb/franz-go/pkg/kgo"
)

// helper is the variable that makes the test binary a program to run beside a broker.
const helper = "KILLICK_TEST_DEV"

func TestMain(m *testing.M) {
	if what := os.Getenv(helper); what != "" {
		os.Exit(help(what))
	}
	goleak.VerifyTestMain(m)
}

// help is the program.
func help(what string) int {
	switch what {
	case "echo": // its standard input, where Kafka is, and its arguments
		if _, err := io.Copy(os.Stdout, os.Stdin); err != nil {
			return 1
		}
		fmt.Printf("%s %s %q\n", os.Getenv(EnvBootstrap), os.Getenv(envKafka), os.Args[1:])
		fmt.Fprintln(os.Stderr, "on stderr")
		return 7
	case "signals": // two of them, named
		ch := make(chan os.Signal, 2)
		signal.Notify(ch, os.Interrupt, syscall.SIGTERM)
		fmt.Println("ready")
		for range 2 {
			fmt.Println(<-ch)
		}
		return 9
	case "dies":
		fmt.Println("ready")
		select {}
	}
	return 1
}

// limited is a context that ends with the test, or when it hangs.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// start runs a broker until the end of the test.
func start(t *testing.T, o Options) *Broker {
	t.Helper()
	b, err := Start(limited(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// open is a client, closed before the broker.
func open(t *testing.T, b *Broker, opts ...kgo.Opt) *client {
	t.Helper()
	c, err := dial(limited(t), b.Address(), append(opts, kgo.SeedBrokers(b.Address())))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// buffer may be written and read at the same time.
type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
	// grown has room for one: that something was written since it was taken.
	grown chan struct{}
}

func newBuffer() *buffer { return &buffer{grown: make(chan struct{}, 1)} }

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.grown <- struct{}{}:
	default:
	}
	return b.buf.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// wait returns when text has been written.
func (b *buffer) wait(t *testing.T, text string) {
	t.Helper()
	ctx := limited(t)
	for !strings.Contains(b.String(), text) {
		select {
		case <-b.grown:
		case <-ctx.Done():
			t.Fatalf("%q was not written, only %q", text, b)
		}
	}
}
