package dev

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

var (
	// ErrUsage is under what is wrong with a call. The user mends the call.
	ErrUsage = errors.New("wrong usage")
	// ErrUnreachable says that no broker answers. The user starts it, or mends the address.
	ErrUnreachable = errors.New("cannot reach Kafka")
)

// usage is an error under ErrUsage whose text is its own alone.
type usage struct{ error }

func (u usage) Is(target error) bool { return target == ErrUsage }
func (u usage) Unwrap() error        { return u.error }

func wrong(format string, args ...any) error { return usage{fmt.Errorf(format, args...)} }

const (
	// DefaultPort is where clients look for Kafka that were told nothing.
	DefaultPort = 9092
	// DefaultPartitions is how many a topic has that nobody said a number for: enough to see that partitions are worked on
	// side by side.
	DefaultPartitions = 4
	// maxPartitions of one topic. A broker for a laptop keeps each in memory, and watches it.
	maxPartitions = 1000
)

// Topic is one to be there from the start.
type Topic struct {
	Name string
	// Partitions is their number. Default: Options.Partitions for a new topic, what it has for one that is kept in
	// Options.Data.
	Partitions int
}

// ParseTopics reads "names:2,greetings:2". The number may be left out. All mistakes are joined.
func ParseTopics(s string) ([]Topic, error) {
	var topics []Topic
	var errs []error
	seen := map[string]bool{}
	for item := range strings.SplitSeq(s, ",") {
		name, number, given := strings.Cut(strings.TrimSpace(item), ":")
		t := Topic{Name: name}
		if err := checkName(name); err != nil {
			errs = append(errs, fmt.Errorf("%q: %w", item, err))
			continue
		}
		if given {
			n, err := strconv.Atoi(number)
			if err != nil || n < 1 || n > maxPartitions {
				errs = append(errs, fmt.Errorf("%q: %q partitions: want a number from 1 to %d, as in %s:2", item, number, maxPartitions, name))
				continue
			}
			t.Partitions = n
		}
		if seen[name] {
			errs = append(errs, fmt.Errorf("%q: the topic is given twice", item))
			continue
		}
		seen[name] = true
		topics = append(topics, t)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, usage{err}
	}
	return topics, nil
}

// checkName says what Kafka would not take as the name of a topic.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("a topic needs a name")
	case name == "." || name == "..":
		return fmt.Errorf("%q is no name for a topic", name)
	case len(name) > 249:
		return fmt.Errorf("the name has %d characters, 249 are allowed", len(name))
	}
	for _, r := range name {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-' {
			return fmt.Errorf("%q is not allowed in the name of a topic: use letters, digits, '.', '_' and '-'", r)
		}
	}
	return nil
}

// Options say what broker to run. The zero value is good: a free port, everything in memory, topics made when asked for.
type Options struct {
	// Port to listen on, at 127.0.0.1. Default: a free one.
	Port int
	// Topics that are there from the start.
	Topics []Topic
	// Partitions of topics that nobody said a number for. Default: DefaultPartitions.
	Partitions int
	// NoCreate makes no topic because a client asks for it.
	NoCreate bool
	// Data is a folder that keeps everything over restarts. It must be one of an earlier broker, empty, or not exist.
	// Default: everything is in memory and ends with the broker.
	Data string
	// Folder is where brokers announce themselves; see [Folder]. Default: none, it cannot be found.
	Folder string
	// Log takes a line for each topic that is made. Default: none.
	Log io.Writer
}

// check fills in the defaults and reports all mistakes. Data is absolute then.
func (o Options) check() (Options, error) {
	var errs []error
	if o.Port < 0 || o.Port > math.MaxUint16 {
		errs = append(errs, fmt.Errorf("--port %d: want 0 to %d", o.Port, math.MaxUint16))
	}
	if o.Partitions == 0 {
		o.Partitions = DefaultPartitions
	}
	if o.Partitions < 1 || o.Partitions > maxPartitions {
		errs = append(errs, fmt.Errorf("--partitions %d: want 1 to %d", o.Partitions, maxPartitions))
	}
	seen := map[string]bool{}
	for _, t := range o.Topics {
		if seen[t.Name] {
			errs = append(errs, fmt.Errorf("--topics: topic %s is given twice", t.Name))
		}
		seen[t.Name] = true
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.Data != "" {
		var err error
		if o.Data, err = dataFolder(o.Data); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return o, usage{err}
	}
	return o, nil
}

// dataFolder makes sure that nothing but an earlier broker's data is in the folder, and returns its one true path.
func dataFolder(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("--data %s: %w", path, err)
	}
	switch in, err := os.ReadDir(abs); {
	case errors.Is(err, os.ErrNotExist):
		if err := os.MkdirAll(abs, 0o700); err != nil {
			return "", fmt.Errorf("--data %s: %w", path, err)
		}
	case err != nil:
		return "", fmt.Errorf("--data %s: %w", path, err)
	case len(in) > 0:
		// The file that the broker reads first.
		if _, err := os.Stat(filepath.Join(abs, "meta.json")); err != nil {
			return "", fmt.Errorf("--data %s: the folder has files in it that are not a broker's: name an empty or a new one", path)
		}
	}
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return "", fmt.Errorf("--data %s: %w", path, err)
	}
	return abs, nil
}
