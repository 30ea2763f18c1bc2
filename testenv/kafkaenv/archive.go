//go:build unix

package kafkaenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// archive makes the JVM's archive of loaded classes for a release, if it is not there: with it a
// broker starts in half the time and takes half the processor time. The archive is written by a
// broker that ends with this flag, so one is started for that, once for each machine and release.
// Java uses it only with the same java, jars and order of jars, and does without it otherwise.
func (c *Cluster) archive(ctx context.Context) error {
	file := c.archiveFile()
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	unlock, err := c.jars.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(file); err == nil {
		return nil // another process was quicker
	}
	cfg, err := configure([]Option{Version(c.config.version)})
	if err != nil {
		return err
	}
	once := &Cluster{config: cfg, jars: c.jars, plain: true}
	if err := once.open(); err != nil {
		return err
	}
	defer os.RemoveAll(once.dir)
	part := file + ".part"
	if err := once.launch(ctx, "-XX:ArchiveClassesAtExit="+part); err != nil {
		return errors.Join(err, once.end())
	}
	b := once.brokers[0]
	if err := b.process().Signal(syscall.SIGTERM); err != nil {
		return errors.Join(err, once.end())
	}
	select {
	case <-b.process().Done():
	case <-time.After(time.Minute):
		return errors.Join(fmt.Errorf("kafkaenv: a broker that archives its classes did not end; see %s", filepath.Join(b.dir, "out.log")), once.end())
	case <-ctx.Done():
		return errors.Join(ctx.Err(), once.end())
	}
	return os.Rename(part, file)
}

func (c *Cluster) archiveFile() string { return filepath.Join(c.jars.Dir, "classes.jsa") }
