package storm_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv"
)

func split(_ context.Context, sentence string, emit func(string)) error {
	for word := range strings.FieldsSeq(sentence) {
		emit(word)
	}
	return nil
}

// count is made once per task, like a bolt of Storm: its map needs no lock.
type count struct{ seen map[string]int }

func (c *count) Prepare(context.Context, killick.Task) error {
	c.seen = map[string]int{}
	return nil
}

func (c *count) Execute(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
	word := string(in.Bytes())
	c.seen[word]++
	out.Emit(killick.Message{Key: []byte(word), Bytes: []byte(strconv.Itoa(c.seen[word]))})
	return nil
}

func wordCount() *killick.Topology {
	t := killick.New("word-count")
	t.Spout("sentences", spout.KafkaSource{Topics: []string{"sentences"}, Codec: killick.String()})
	t.Bolt("split", bolt.FlatMap(split)).Shuffle("sentences").Stream("", killick.String()).Tasks(2)
	t.Bolt("count", func() killick.Bolt { return &count{} }).Fields("split", (*killick.Tuple).Bytes).Tasks(3)
	t.Bolt("out", bolt.Kafka("counts")).Shuffle("count")
	return t
}

func Example_wordCount() {
	r := testenv.RunReal(tb{}, wordCount(), testenv.Feed("sentences",
		killick.Message{Bytes: []byte("the cow jumped over the moon")},
		killick.Message{Bytes: []byte("the moon")}))
	for _, m := range r.Written("counts") {
		fmt.Printf("%s %s\n", m.Key, m.Bytes)
	}
	// Unordered output:
	// the 1
	// the 2
	// the 3
	// cow 1
	// jumped 1
	// over 1
	// moon 1
	// moon 2
}
