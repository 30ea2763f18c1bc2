package bench

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/killick-io/killick/internal/bench/alo"
	"github.com/killick-io/killick/worker"
)

var (
	// ErrUsage is under what is wrong with a call: nothing was started. The user mends the call.
	ErrUsage = errors.New("wrong usage")
	// ErrUnreachable says that no Kafka answered at the address that was given.
	ErrUnreachable = errors.New("cannot reach Kafka")
)

// usage is an error under ErrUsage whose text is its own alone: one line, whatever is in it.
type usage struct{ error }

func (u usage) Is(target error) bool { return target == ErrUsage }
func (u usage) Unwrap() error        { return u.error }
func (u usage) Error() string {
	return strings.ReplaceAll(strings.ReplaceAll(u.error.Error(), "\n", "; "), "bench: ", "")
}

// mistakes is nil without any.
func mistakes(errs ...error) error {
	if err := errors.Join(errs...); err != nil {
		return usage{err}
	}
	return nil
}

// Where says what Kafka is measured.
type Where struct {
	// Kafka is the host:port of one that runs. Default: one is started.
	Kafka string
	// Environ has the settings KILLICK_* for TLS and SASL, as os.Environ gives them: this process's own, as slices run
	// with them. They are used only with Kafka.
	Environ []string
	// Log takes a line now and then about how it goes. Default: none.
	Log io.Writer
}

func (w Where) say(format string, args ...any) {
	fmt.Fprintf(w.log(), format+"\n", args...)
}

func (w Where) log() io.Writer {
	if w.Log == nil {
		return io.Discard
	}
	return w.Log
}

// config is how to reach Kafka, if there is an address.
func (w Where) config() (worker.Config, error) {
	if w.Kafka == "" {
		return worker.Config{}, nil
	}
	return worker.Load([]string{"--bootstrap=" + w.Kafka}, w.Environ)
}

// arms that [ALO] runs, and what each is compared with. killick pools the structs of records, so its base does, too.
var arms = []alo.Pairing{
	{Name: "fused", Own: "fused", Base: "pooled"},
	{Name: "fused3", Own: "fused3", Base: "pooled"},
	{Name: "hop", Own: "hop", Base: "pooled"},
	{Name: "sink", Own: "sink", Base: "bare-sink"},
	{Name: "defaults", Own: "fused", Base: "bare", Plain: true},
	{Name: "null", Own: "pooled", Base: "pooled"},
}

// ArmNames are the names of the arms, with commas.
func ArmNames() string {
	var all []string
	for _, a := range arms {
		all = append(all, a.Name)
	}
	return strings.Join(all, ",")
}

// ALOOptions say what [ALO] measures. [NewALO] has good ones.
type ALOOptions struct {
	Where
	alo.Plan // Pairings, Ends and what says where Kafka is are filled in
	// Arms are names of ArmNames, with commas.
	Arms string
	// Records is how many a slice reads: for each size, or one for all, with commas.
	Records string
	// Profile is a file for a processor profile of killick's arm; with several, or several sizes, there are several, see
	// alo.ProfileName. Default: none.
	Profile string
}

// NewALO returns options with the defaults: two sizes, twelve pairs each, the collector controlled.
func NewALO() ALOOptions {
	return ALOOptions{Arms: "fused,defaults,null", Records: "5000000,1500000", Plan: alo.Plan{
		Sizes: []int{100, 1024}, Rounds: 13, Batch: 500, Fetch: 1 << 20, GOGC: 400, Ballast: 32, Commit: time.Second}}
}

// maxRecords of a slice: 100 GB of values of a hundred bytes.
const maxRecords = 1_000_000_000

// check fills in what follows from the options, and reports all mistakes.
func (o *ALOOptions) check() error {
	errs := []error{o.Check()}
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	o.Pairings, o.Ends = nil, map[int]int64{}
	for name := range strings.SplitSeq(o.Arms, ",") {
		i := slices.IndexFunc(arms, func(a alo.Pairing) bool { return a.Name == name })
		switch {
		case i < 0:
			fail("-arms: there is no arm %q, but %s", name, ArmNames())
		case slices.Contains(o.Pairings, arms[i]):
			fail("-arms: %q is there twice", name)
		default:
			o.Pairings = append(o.Pairings, arms[i])
		}
	}
	counts := strings.Split(o.Records, ",")
	if len(counts) != 1 && len(counts) != len(o.Sizes) {
		fail("-records: %d numbers for %d sizes: want one for all, or one for each", len(counts), len(o.Sizes))
	}
	for i, size := range o.Sizes {
		s := counts[min(i, len(counts)-1)]
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > maxRecords {
			fail("-records: %q is not a number from 1 to %d", s, maxRecords)
		}
		if o.Batch < 1 { // told already
			continue
		}
		// Of the 61 bytes before the first record there is one copy; two more may number a later record.
		if b, _ := alo.NewBatch(1, size); (len(b)-61+2)*o.Batch+61 > alo.MaxBatch {
			fail("-batch: %d records of %d B are more than Kafka takes as one batch, %d bytes", o.Batch, size, alo.MaxBatch)
		}
		per := alo.Partitions * o.Batch
		o.Ends[size] = int64((n+per-1)/per) * int64(o.Batch)
	}
	if _, err := o.config(); err != nil {
		errs = append(errs, err)
	}
	return mistakes(errs...)
}

// wants reports whether an arm is among those that run.
func (o *ALOOptions) wants(name string) bool {
	return slices.ContainsFunc(o.Pairings, func(q alo.Pairing) bool { return q.Name == name })
}
