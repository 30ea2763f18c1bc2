//go:build unix

package kafkaenv

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// clusterID is every cluster's: a formatted folder is copied for each, and holds it.
const clusterID = "a2lsbGljay10ZXN0ZW52LQ"

// format makes the node's folder of data: a copy of one that was formatted by Kafka once, for
// this release, node, roles and features, and is kept beside the jars. Formatting starts a JVM,
// copying does not.
func (n *node) format(ctx context.Context) error {
	args := n.formatArgs()
	sum := sha256.Sum256([]byte(strings.Join(append(args, n.roles, fmt.Sprint(n.id)), "\x00")))
	kept := filepath.Join(n.cluster.jars.Dir, "formatted", hex.EncodeToString(sum[:8]))
	if _, err := os.Stat(kept); errors.Is(err, os.ErrNotExist) {
		if err := n.formatNew(ctx, args, kept); err != nil {
			return fmt.Errorf("kafkaenv: node %d: %w", n.id, err)
		}
	}
	if err := os.CopyFS(filepath.Join(n.dir, "log"), os.DirFS(kept)); err != nil {
		return fmt.Errorf("kafkaenv: node %d: %w", n.id, err)
	}
	return nil
}

func (n *node) formatArgs() []string {
	c := n.cluster.config
	args := []string{"format", "-t", clusterID}
	if strings.Contains(n.roles, "controller") {
		args = append(args, "--standalone")
	} else {
		args = append(args, "--no-initial-controllers")
	}
	for _, f := range c.features {
		args = append(args, "--feature", f)
	}
	if strings.Contains(n.roles, "controller") {
		for _, u := range c.users {
			args = append(args, "--add-scram", fmt.Sprintf("SCRAM-SHA-256=[name=%s,password=%s]", u.name, u.password))
		}
	}
	return args
}

func (n *node) formatNew(ctx context.Context, args []string, kept string) error {
	cmd := exec.CommandContext(ctx, "java", append(append(n.cluster.flags(filepath.Join(n.dir, "format.log")), "kafka.tools.StorageTool"),
		append(args, "-c", filepath.Join(n.dir, "server.properties"))...)...)
	cmd.Dir = n.dir
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		// A class file of a later version is what an old Java stumbles over first.
		if bytes.Contains(out, []byte("UnsupportedClassVersionError")) {
			return fmt.Errorf("kafka %s needs Java 17 or later, this java is older", n.cluster.config.version)
		}
		return fmt.Errorf("the StorageTool of Kafka: %w: %s", err, bytes.TrimSpace(out))
	}
	log := filepath.Join(n.dir, "log")
	if err := os.MkdirAll(filepath.Dir(kept), 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(kept), "part-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := os.CopyFS(filepath.Join(tmp, "log"), os.DirFS(log)); err != nil {
		return err
	}
	// Somebody else may have been quicker; theirs is as good.
	if err := os.Rename(filepath.Join(tmp, "log"), kept); err != nil && !errors.Is(err, os.ErrExist) {
		if _, missing := os.Stat(kept); missing != nil {
			return err
		}
	}
	return os.RemoveAll(log)
}
