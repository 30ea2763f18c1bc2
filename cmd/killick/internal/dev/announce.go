package dev

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// aliveLimit bounds the question whether the broker of an announcement still runs. It is on loopback.
const aliveLimit = 2 * time.Second

// announcement says where a running broker is.
type announcement struct {
	Address string    `json:"address"`
	PID     int       `json:"pid"`
	Cluster string    `json:"cluster"` // the cluster id: a port may have gone to somebody else since
	Started time.Time `json:"started"`
	Data    string    `json:"data,omitempty"` // the folder that it has open
	file    string
}

// Folder is where the brokers of this user announce themselves.
func Folder() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("dev: a folder to announce the broker in: %w", err)
	}
	return filepath.Join(cache, "killick"), nil
}

// write makes a file of its own for a. Nobody sees half of it: it gets its name when it is whole.
func write(folder string, a announcement) (string, error) {
	text, err := json.Marshal(a)
	if err != nil {
		return "", fmt.Errorf("dev: announce the broker: %w", err)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", fmt.Errorf("dev: announce the broker: %w", err)
	}
	f, err := os.CreateTemp(folder, ".dev-*")
	if err != nil {
		return "", fmt.Errorf("dev: announce the broker: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	err = errors.Join(err, f.Close())
	name := filepath.Join(folder, strings.TrimPrefix(filepath.Base(f.Name()), ".")+".json")
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("dev: announce the broker: %w", err), os.Remove(f.Name()))
	}
	return name, nil
}

// announcements are those in the folder, the newest first. What is no announcement, or goes away meanwhile, is left out.
func announcements(folder string) []announcement {
	files, err := filepath.Glob(filepath.Join(folder, "dev-*.json"))
	if err != nil {
		return nil // the folder has a name that is a bad pattern
	}
	var all []announcement
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		a := announcement{file: file}
		if json.Unmarshal(text, &a) == nil && a.Address != "" && a.Cluster != "" {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b announcement) int {
		return cmp.Or(b.Started.Compare(a.Started), cmp.Compare(a.file, b.file))
	})
	return all
}

// alive reports whether the broker runs. Not to know counts as no, with an error.
func (a *announcement) alive(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, aliveLimit)
	defer cancel()
	// A client would try a refused connection again.
	c, err := new(net.Dialer).DialContext(ctx, "tcp", a.Address)
	if err != nil {
		return false, ctx.Err()
	}
	c.Close()
	id, err := clusterID(ctx, kgo.SeedBrokers(a.Address), kgo.ClientID("killick-dev"), kgo.DisableClientMetrics())
	if err != nil {
		return false, err
	}
	return id == a.Cluster, nil
}

// clusterID asks a broker for it.
func clusterID(ctx context.Context, opts ...kgo.Opt) (string, error) {
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return "", err
	}
	defer cl.Close()
	m, err := kadm.NewClient(cl).BrokerMetadata(ctx)
	return m.Cluster, err
}

// sweep returns the announcements of brokers that run, and removes those of brokers that surely do not.
func sweep(ctx context.Context, folder string) []announcement {
	var live []announcement
	for _, a := range announcements(folder) {
		switch ok, err := a.alive(ctx); {
		case ok:
			live = append(live, a)
		case err == nil:
			_ = os.Remove(a.file) // if that does not work, Find goes on to ignore it
		}
	}
	return live
}

// Find returns the address of the newest broker that runs, or "" if there is none.
func Find(ctx context.Context, folder string) string {
	if folder == "" {
		return ""
	}
	for _, a := range announcements(folder) {
		if ok, _ := a.alive(ctx); ok {
			return a.Address
		}
	}
	return ""
}
