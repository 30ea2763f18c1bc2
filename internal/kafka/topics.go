package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Topic is a topic as the cluster has it.
type Topic struct {
	Name       string
	ID         [16]byte // zero from brokers before 2.8
	Partitions int
}

// metadata asks a broker about topics. kadm and kgo answer from a cache that is
// up to MetadataMinAge old (5 s by default), in which a topic or partition just
// made, by us or by others, is missing; this goes past it and renews it.
func (a *Admin) metadata(ctx context.Context, names ...string) (map[string]kmsg.MetadataResponseTopic, error) {
	return a.ask(ctx, false, names...)
}

// ask is metadata, with the operations that are allowed on each topic if rights is set.
func (a *Admin) ask(ctx context.Context, rights bool, names ...string) (map[string]kmsg.MetadataResponseTopic, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations = rights
	req.Topics = make([]kmsg.MetadataRequestTopic, 0, len(names)) // none, not all
	for _, name := range names {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, rt)
	}
	resp, err := req.RequestWith(ctx, a.cl)
	if err != nil {
		return nil, fmt.Errorf("kafka: metadata of topics %q: %w", names, err)
	}
	out := make(map[string]kmsg.MetadataResponseTopic, len(resp.Topics))
	for _, t := range resp.Topics {
		if t.Topic != nil {
			out[*t.Topic] = t
		}
	}
	return out, nil
}

// topicErr is what is wrong with a topic in a metadata answer.
func topicErr(name string, t kmsg.MetadataResponseTopic, ok bool) error {
	switch err := kerr.ErrorForCode(t.ErrorCode); {
	case !ok || errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("%w: %q", ErrNoTopic, name)
	case err != nil:
		return fmt.Errorf("kafka: topic %q: %w", name, err)
	}
	return nil
}

// Topics describes topics that must exist. Those that do not are named in an
// error that wraps ErrNoTopic; all mistakes are joined. Topics are never
// created by asking. They are to be read: that is the right which an error names.
func (a *Admin) Topics(ctx context.Context, names ...string) (map[string]Topic, error) {
	return a.describe(ctx, kmsg.ACLOperationRead, names...)
}

// Outputs is Topics for topics that are to be written to.
func (a *Admin) Outputs(ctx context.Context, names ...string) (map[string]Topic, error) {
	return a.describe(ctx, kmsg.ACLOperationWrite, names...)
}

func (a *Admin) describe(ctx context.Context, op kmsg.ACLOperation, names ...string) (map[string]Topic, error) {
	out := make(map[string]Topic, len(names))
	if len(names) == 0 {
		return out, nil
	}
	got, err := a.metadata(ctx, names...)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, name := range names {
		t, ok := got[name]
		if err := topicErr(name, t, ok); err != nil {
			errs = append(errs, a.Denied(err, op, kmsg.ACLResourceTypeTopic, name))
			continue
		}
		out[name] = Topic{Name: name, ID: t.TopicID, Partitions: len(t.Partitions)}
	}
	return out, errors.Join(errs...)
}

// TopicSpec describes a topic that killick needs, such as one for dead letters.
type TopicSpec struct {
	Name       string
	Partitions int
	// Replication is the number of replicas. Default: the broker's
	// default.replication.factor.
	Replication int
	// Config are topic settings, "retention.ms" to "-1". They count at
	// creation only; a topic that exists keeps its own.
	Config map[string]string
}

func (s TopicSpec) validate() error {
	var errs []error
	if err := CheckTopicName(s.Name); err != nil {
		errs = append(errs, err)
	}
	if s.Partitions < 1 {
		errs = append(errs, fmt.Errorf("kafka: topic %q: %d partitions; at least 1 is needed", s.Name, s.Partitions))
	}
	if s.Replication < 0 || s.Replication > 32767 {
		errs = append(errs, fmt.Errorf("kafka: topic %q: replication %d", s.Name, s.Replication))
	}
	return errors.Join(errs...)
}

// CheckTopicName says what Kafka would not accept as the name of a topic: at
// most 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-', not "." or "..".
func CheckTopicName(name string) error {
	switch {
	case name == "":
		return errors.New("kafka: the topic name is empty")
	case name == "." || name == "..":
		return fmt.Errorf("kafka: topic name %q is reserved", name)
	case len(name) > 249:
		return fmt.Errorf("kafka: topic name %.40q... has %d characters; 249 are allowed", name, len(name))
	}
	for _, r := range name {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-' {
			return fmt.Errorf("kafka: topic name %q: %q is not allowed; use letters, digits, '.', '_' and '-'", name, r)
		}
	}
	return nil
}

// command is the shell command that makes the topic.
func (s TopicSpec) command(seeds []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "kafka-topics.sh --bootstrap-server %s --create --topic %s --partitions %d",
		shellQuote(strings.Join(seeds, ",")), shellQuote(s.Name), s.Partitions)
	if s.Replication > 0 {
		fmt.Fprintf(&b, " --replication-factor %d", s.Replication)
	}
	for _, k := range slices.Sorted(maps.Keys(s.Config)) {
		fmt.Fprintf(&b, " --config %s", shellQuote(k+"="+s.Config[k]))
	}
	return b.String()
}

// shellQuote leaves plain words alone and puts others in single quotes.
func shellQuote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-,:=/", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// EnsureTopic returns the topic, after creating it if it does not exist and
// create is true. Somebody else creating it at the same time is fine. More
// partitions than asked for are fine, fewer are ErrFewPartitions. Without
// create, or without the right to, the error says which command makes it.
func (a *Admin) EnsureTopic(ctx context.Context, spec TopicSpec, create bool) (Topic, error) {
	if err := spec.validate(); err != nil {
		return Topic{}, err
	}
	got, err := a.Outputs(ctx, spec.Name)
	if err == nil {
		return enough(got[spec.Name], spec)
	}
	if !errors.Is(err, ErrNoTopic) {
		return Topic{}, err
	}
	if !create {
		return Topic{}, fmt.Errorf("%w, and creating topics is switched off; create it with:\n  %s", err, spec.command(a.seeds))
	}
	configs := make(map[string]*string, len(spec.Config))
	for k, v := range spec.Config {
		configs[k] = &v
	}
	replication := int16(-1)
	if spec.Replication > 0 {
		replication = int16(spec.Replication)
	}
	made, err := a.adm.CreateTopic(ctx, int32(spec.Partitions), replication, configs, spec.Name)
	switch {
	case err == nil && made.Err == nil:
		// The answer carries id and partition count from CreateTopics 7 on
		// (Kafka 2.8); the metadata of other brokers may lag behind it.
		if made.ID != (kadm.TopicID{}) {
			return Topic{Name: spec.Name, ID: made.ID, Partitions: spec.Partitions}, nil
		}
	case errors.Is(err, kerr.TopicAlreadyExists) || errors.Is(made.Err, kerr.TopicAlreadyExists):
		// Between our look and our request; look again.
	default:
		detail := ""
		if made.ErrMessage != "" {
			detail = " (" + made.ErrMessage + ")"
		}
		return Topic{}, fmt.Errorf("kafka: create topic %q%s: %w; somebody who may can create it with:\n  %s",
			spec.Name, detail, a.Denied(errors.Join(err, notSame(made.Err, err)), kmsg.ACLOperationCreate, kmsg.ACLResourceTypeTopic, spec.Name), spec.command(a.seeds))
	}
	got, err = a.Outputs(ctx, spec.Name)
	if err != nil {
		return Topic{}, err
	}
	return enough(got[spec.Name], spec)
}

// notSame is err unless it is in other already.
func notSame(err, other error) error {
	if errors.Is(other, err) {
		return nil
	}
	return err
}

func enough(t Topic, spec TopicSpec) (Topic, error) {
	if t.Partitions < spec.Partitions {
		return Topic{}, fmt.Errorf("%w: %q has %d, %d are needed; add them with kafka-topics.sh --alter --topic %s --partitions %d",
			ErrFewPartitions, t.Name, t.Partitions, spec.Partitions, shellQuote(t.Name), spec.Partitions)
	}
	return t, nil
}

// Matching returns the names of the topics that re matches, sorted, without internal ones and
// those that skip names.
func (a *Admin) Matching(ctx context.Context, re *regexp.Regexp, skip func(string) bool) ([]string, error) {
	all, err := a.adm.ListTopics(ctx)
	if err != nil {
		return nil, fmt.Errorf("kafka: listing topics for the pattern %q: %w", re, err)
	}
	var names []string
	for name := range all {
		if re.MatchString(name) && !skip(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// MaxMessageBytes returns what the topics allow as the size of a batch (max.message.bytes). Topics
// that cannot be asked, for want of a permission, are absent.
func (a *Admin) MaxMessageBytes(ctx context.Context, topics ...string) (map[string]int32, error) {
	out := map[string]int32{}
	if len(topics) == 0 {
		return out, nil
	}
	got, err := a.adm.DescribeTopicConfigs(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("kafka: settings of topics %q: %w", topics, err)
	}
	for _, rc := range got {
		for _, c := range rc.Configs {
			if c.Key != "max.message.bytes" || c.Value == nil {
				continue
			}
			if n, err := strconv.ParseInt(*c.Value, 10, 32); err == nil && n > 0 {
				out[rc.Name] = int32(n)
			}
		}
	}
	return out, nil
}
