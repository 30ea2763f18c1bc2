//go:build unix

package kafkaenv

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/killick-io/killick/testenv/internal/jvm"
)

const controllerDoor Listener = "CONTROLLER"

// node is a process of the cluster: a broker, a controller, or both.
type node struct {
	cluster *Cluster
	id      int
	roles   string // as in process.roles
	dir     string
	ports   map[Listener]int

	mu   sync.Mutex
	proc *jvm.Process // nil before the first start; an ended one after a kill
}

// Broker is one broker of a cluster. Its methods may be called from any goroutine. They act on the
// process; what follows from that, such as another leader, comes when Kafka has noticed.
type Broker struct{ node }

// ID is Kafka's node.id: brokers count from 1.
func (b *Broker) ID() int { return b.id }

// Addr is the address of one of the broker's listeners; "" if the cluster has no such listener.
func (b *Broker) Addr(l Listener) string {
	if b.ports[l] == 0 {
		return ""
	}
	return fmt.Sprintf("127.0.0.1:%d", b.ports[l])
}

// Pid is the broker's process ID.
func (b *Broker) Pid() int { return b.process().Pid() }

// Running reports whether the broker's process lives, paused or not.
func (b *Broker) Running() bool { return b.running() }

// Log is the file that the broker logs to.
func (b *Broker) Log() string { return filepath.Join(b.dir, "broker.log") }

// Kill ends the broker with SIGKILL: what it had written stays, as the operating system does not
// crash with it.
func (b *Broker) Kill() error { return b.process().Kill() }

// Stop ends the broker with SIGTERM: it hands its leaders over, if others are there to take them.
func (b *Broker) Stop(ctx context.Context) error { return b.process().Stop(ctx, stopGrace) }

// Pause stops the process with SIGSTOP: connections stay, nothing answers.
func (b *Broker) Pause() error { return b.signal(syscall.SIGSTOP) }

// Resume ends a pause.
func (b *Broker) Resume() error { return b.signal(syscall.SIGCONT) }

// Start starts a killed or stopped broker again, on its data and its addresses, and waits until it
// takes part in the cluster. A broker that was killed is let in when the controller has missed it:
// about four seconds after the kill.
func (b *Broker) Start(ctx context.Context) error {
	if err := b.start(); err != nil {
		return err
	}
	return b.cluster.await(ctx, b)
}

// process is the last one that was started; nil before the first.
func (n *node) process() *jvm.Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proc
}

func (n *node) signal(s syscall.Signal) error {
	if err := n.process().Signal(s); err != nil {
		return fmt.Errorf("kafkaenv: broker %d: %w", n.id, err)
	}
	return nil
}

func (n *node) running() bool {
	p := n.process()
	if p == nil {
		return false
	}
	select {
	case <-p.Done():
		return false
	default:
		return true
	}
}

// failed says why a process that nobody ended is not there.
func (n *node) failed() error {
	p := n.process()
	if p == nil {
		return nil
	}
	if err := p.Err(); err != nil {
		return fmt.Errorf("kafkaenv: node %d of Kafka %s: %w; in its log: %s", n.id, n.cluster.config.version, err, n.complaints())
	}
	return nil
}

// complaints are the last lines of the log that say what is wrong.
func (n *node) complaints() string {
	log, err := os.ReadFile(filepath.Join(n.dir, "broker.log"))
	if err != nil {
		return err.Error()
	}
	var all []string
	for _, line := range strings.Split(string(log), "\n") {
		if strings.Contains(line, "ERROR") || strings.Contains(line, "FATAL") || strings.Contains(line, "Exception") && !strings.HasPrefix(line, "\t") {
			all = append(all, line)
		}
	}
	return strings.Join(all[max(0, len(all)-4):], " | ")
}

// stopGrace is how long a broker may take to stop; it takes half a second.
const stopGrace = 30 * time.Second

// start starts the process; the folder has its properties.
func (n *node) start(extra ...string) error {
	if n.running() {
		return fmt.Errorf("kafkaenv: broker %d runs already", n.id)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	p, err := jvm.Command{
		Dir: n.dir,
		Out: filepath.Join(n.dir, "out.log"),
		Args: append(n.cluster.flags(filepath.Join(n.dir, "broker.log"), extra...),
			"kafka.Kafka", filepath.Join(n.dir, "server.properties")),
	}.Start()
	if err != nil {
		return fmt.Errorf("kafkaenv: broker %d: %w", n.id, err)
	}
	n.proc = p
	return nil
}

// clash reports whether the process ended because its port was taken by somebody else.
func (n *node) clash() bool {
	if n.running() {
		return false
	}
	out, err := os.ReadFile(filepath.Join(n.dir, "out.log"))
	log, err2 := os.ReadFile(filepath.Join(n.dir, "broker.log"))
	return (err == nil || err2 == nil) && strings.Contains(string(out)+string(log), "Address already in use")
}

// end kills the process: nobody reads its data again.
func (n *node) end() error {
	p := n.process()
	if p == nil {
		return nil
	}
	return p.Kill()
}

// flags are the JVM's, up to the class.
func (c *Cluster) flags(log string, extra ...string) []string {
	quick := []string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xms32m", "-Xmx256m"}
	if c.config.load {
		quick = []string{"-Xms1g", "-Xmx1g"}
	}
	if !c.plain && !c.config.load {
		quick = append(quick, "-Xshare:auto", "-XX:SharedArchiveFile="+c.archiveFile())
	}
	return append(append(append(quick, extra...),
		"-Dlog4j2.configurationFile="+filepath.Join(c.dir, "log4j2.xml"), "-Dkillick.log="+log, // 4.1 and later
		"-Dorg.slf4j.simpleLogger.logFile="+log), // before
		"-cp", c.jars.ClassPath())
}

const log4j = `<Configuration><Appenders><File name="F" fileName="${sys:killick.log}"><PatternLayout pattern="%d{ISO8601} %p %c{1} %m%n"/></File></Appenders>` +
	`<Loggers><Root level="INFO"><AppenderRef ref="F"/></Root></Loggers></Configuration>`
