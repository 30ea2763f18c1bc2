package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/killick-io/killick/internal/bench/alo"
)

// topicOf is the topic with values of size bytes.
func topicOf(size int) string { return "bench-" + strconv.Itoa(size) }

// newBroker starts a broker in this process whose topic has records of one size without end. There is no topic
// for outputs: kfake keeps what is produced on the heap, and takes half of the time that producing takes.
func newBroker(batch, size int) (*kfake.Cluster, error) {
	b, _ := alo.NewBatch(batch, size)
	return kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(alo.Partitions, topicOf(size)),
		kfake.SyntheticFetch(kfake.SyntheticBatch{Batch: b}))
}

// brokerMain is the broker process: it prints its address and lives until in ends.
func brokerMain(batch, size int, in io.Reader, out io.Writer) error {
	c, err := newBroker(batch, size)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := fmt.Fprintln(out, c.ListenAddrs()[0]); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	return err
}

// startBroker runs the broker in a process of its own. stop ends it and waits for it.
func startBroker(batch, size int) (addr string, stop func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	cmd := exec.Command(self, "-child-broker", strconv.Itoa(size), "-batch", strconv.Itoa(batch))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, fmt.Errorf("bench: start the broker: %w", err)
	}
	stop = func() error {
		in.Close()
		return cmd.Wait()
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return "", nil, fmt.Errorf("bench: the broker has said no address: %w (%v)", err, stop())
	}
	return strings.TrimSpace(line), stop, nil
}
