package bolt_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/killick-io/killick"
	"github.com/killick-io/killick/bolt"
	"github.com/killick-io/killick/spout"
	"github.com/killick-io/killick/testenv"
	"github.com/killick-io/killick/testenv/bubble"
)

// Keys, values and headers reach the topic as they were read: nil and empty stay different.
// dapr/components-contrib #3935 and others merge them, or crash on a null value.
// FC-43: ag2ai/faststream PR #2933, mateusjunges/laravel-kafka #290.
func TestSinkKeepsNilAndEmpty(t *testing.T) {
	var in []killick.Message
	for _, kv := range [][2][]byte{{[]byte("k"), nil}, {[]byte("k"), {}}, {nil, []byte("v")}, {nil, nil}, {{}, {}}, {{0xff, 0}, {0xfe}}} {
		for _, hs := range [][]killick.Header{nil, {{Key: "h", Value: []byte("1")}, {Key: "h", Value: nil}, {Key: "", Value: []byte{}}}} {
			in = append(in, killick.Message{Key: kv[0], Bytes: kv[1], Headers: hs, Time: time.UnixMilli(int64(len(in)))})
		}
	}
	pass := bolt.Func(func(_ context.Context, t *killick.Tuple, out killick.Emitter) error {
		out.Emit(t.Message())
		return nil
	})
	for name, c := range map[string]killick.Codec{"no codec": nil, "bytes": killick.Bytes()} {
		for _, emitted := range []killick.Codec{nil, killick.Bytes()} {
			top, _ := line(pass, c, emitted)
			r := testenv.Run(t, top, testenv.Feed("in", in...))
			out := r.Written("out")
			if len(out) != len(in) {
				t.Fatalf("%s: %d of %d written; dead: %+v", name, len(out), len(in), r.DeadLetters())
			}
			for i := range in {
				if !same(out[i].Key, in[i].Key) || !same(out[i].Bytes, in[i].Bytes) || !out[i].Time.Equal(in[i].Time) || !reflect.DeepEqual(out[i].Headers, in[i].Headers) {
					t.Errorf("%s: %#v became %#v", name, in[i], out[i])
				}
			}
		}
	}
}

// The timestamp rule: the input's, whatever it is, in milliseconds; the time of writing by Now.
// FC-45: KAFKA-14991, KAFKA-6482, teslamotors/kafka-helmsman PR #45.
func TestSinkTimestamps(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		now := time.Now()
		times := []time.Time{time.UnixMilli(-1), time.UnixMilli(0), now.AddDate(-10, 0, 0), now.Add(time.Hour), time.UnixMilli(1<<62 - 1)}
		var in []killick.Message
		for _, at := range times {
			in = append(in, killick.Message{Time: at})
		}
		emit := func(m func(in *killick.Tuple) killick.Message) killick.BoltFactory {
			return bolt.Func(func(_ context.Context, in *killick.Tuple, out killick.Emitter) error {
				<-time.After(time.Second) // virtual time
				out.Emit(m(in))
				return nil
			})
		}
		run := func(sink killick.BoltFactory, m func(in *killick.Tuple) killick.Message) (out []int64) {
			top := killick.New("times")
			top.Spout("in", spout.Kafka("in"))
			top.Bolt("b", emit(m)).Shuffle("in")
			top.Bolt("out", sink).Shuffle("b")
			for _, m := range testenv.RunReal(t, top, testenv.Feed("in", in...)).Written("out") {
				out = append(out, m.Time.UnixMilli())
			}
			return out
		}
		var want []int64
		for _, at := range times {
			want = append(want, at.UnixMilli())
		}
		if got := run(bolt.Kafka("out"), func(in *killick.Tuple) killick.Message { return in.Message() }); !reflect.DeepEqual(got, want) {
			t.Errorf("as they come: %v, want %v", got, want)
		}
		// A new message without a time has its input's.
		if got := run(bolt.Kafka("out"), func(*killick.Tuple) killick.Message { return killick.Message{} }); !reflect.DeepEqual(got, want) {
			t.Errorf("inherited: %v, want %v", got, want)
		}
		before := time.Now().UnixMilli()
		got := run(bolt.KafkaSink{Topic: "out", Now: true}.New, func(in *killick.Tuple) killick.Message { return in.Message() })
		for i, ms := range got {
			if ms < before+int64(i+1)*1000 || ms > before+int64(i+2)*1000 {
				t.Errorf("Now: %d after %v", i, time.Duration(ms-before)*time.Millisecond)
			}
		}
		if len(got) != len(times) {
			t.Errorf("Now: %v", got)
		}
	})
}

func TestSinkTopicOf(t *testing.T) {
	top := killick.New("topics")
	top.Spout("in", spout.Kafka("in"))
	top.Bolt("out", bolt.KafkaSink{TopicOf: func(in *killick.Tuple) string {
		if string(in.Key()) == "3" {
			panic("no topic for three")
		}
		if string(in.Key()) == "4" {
			return ""
		}
		return "t" + string(in.Key()[len(in.Key())-1:])
	}}.New).Shuffle("in")
	r := testenv.Run(t, top, testenv.Feed("in", numbers(20)...))
	if a, b := len(r.Written("t2")), len(r.Written("t3")); a != 2 || b != 1 {
		t.Errorf("t2 has %d, t3 %d", a, b)
	}
	d := r.DeadLetters()
	if len(d) != 2 || d[0].Attempts != 1 || !strings.Contains(d[0].Err.Error(), "no topic for three") || !strings.Contains(d[1].Err.Error(), `the sink "out" has no topic for the tuple`) {
		t.Errorf("dead: %+v", d)
	}
}

// Which codec makes the bytes: the sink's, else what was read as it is, else the stream's.
func TestSinkCodec(t *testing.T) {
	spaced := killick.Message{Bytes: []byte(` {"Cents":1, "ID":"a"} `)}
	hash := killick.NewCodec(func(o order) ([]byte, error) {
		if o.ID == "bad" {
			return nil, errors.New("cannot encode bad")
		}
		return fmt.Appendf(nil, "#%s:%d", o.ID, o.Cents), nil
	}, func([]byte) (order, error) { return order{}, errors.New("one way") })
	run := func(sink killick.BoltFactory, in killick.Codec, m killick.Message) string {
		top := killick.New("codecs")
		top.Spout("in", spout.KafkaSource{Topics: []string{"in"}, Codec: in})
		top.Bolt("out", sink).Shuffle("in")
		r := testenv.Run(t, top, testenv.Feed("in", m))
		if d := r.DeadLetters(); len(d) > 0 {
			return fmt.Sprintf("dead after %d: %v", d[0].Attempts, d[0].Err)
		}
		return string(r.Written("out")[0].Bytes)
	}
	for _, c := range []struct {
		name string
		sink killick.Codec
		in   killick.Codec
		m    killick.Message
		want string
	}{
		{"what was read goes out unchanged", nil, killick.JSON[order](), spaced, string(spaced.Bytes)},
		{"the sink's codec", hash, killick.JSON[order](), spaced, "#a:1"},
		{"null passes by", hash, killick.JSON[order](), killick.Message{}, ""},
		{"bytes count as bytes", hash, nil, killick.Message{Bytes: []byte("raw")}, "raw"},
		{"another type", hash, killick.JSON[any](), killick.Message{Bytes: []byte(`"x"`)}, "dead after 1: killick: the stream's codec cannot encode the value: killick: the codec encodes bolt_test.order, not string"},
		{"an error of the codec", hash, killick.JSON[order](), killick.Message{Bytes: []byte(`{"ID":"bad"}`)}, "dead after 1: killick: the stream's codec cannot encode the value: cannot encode bad"},
	} {
		if got := run(bolt.KafkaSink{Topic: "out", Codec: c.sink}.New, c.in, c.m); got != c.want {
			t.Errorf("%s: %s", c.name, got)
		}
	}
	// Emitted values: by the codec of their stream; without one strings and bytes only.
	emit := func(v any) killick.BoltFactory {
		return bolt.Func(func(_ context.Context, _ *killick.Tuple, out killick.Emitter) error {
			out.Emit(killick.Message{Value: v})
			return nil
		})
	}
	for _, c := range []struct {
		v      any
		stream killick.Codec
		want   string
	}{
		{order{"a", 1}, killick.JSON[order](), `{"ID":"a","Cents":1}`},
		{"text", nil, "text"},
		{[]byte("bytes"), nil, "bytes"},
		{7, nil, "dead"},
		{"text", killick.JSON[order](), "dead"},
	} {
		top, _ := line(emit(c.v), nil, c.stream)
		r := testenv.Run(t, top, testenv.Feed("in", killick.Message{}))
		got := "dead"
		if w := r.Written("out"); len(w) == 1 {
			got = string(w[0].Bytes)
		}
		if got != c.want || r.Acked("in")+len(r.DeadLetters()) != 1 {
			t.Errorf("%v: %s, want %s; dead: %+v", c.v, got, c.want, r.DeadLetters())
		}
		for _, d := range r.DeadLetters() {
			if d.Attempts != 1 {
				t.Errorf("%v: %d tries: trying again does not help", c.v, d.Attempts)
			}
		}
	}
}

func TestSinkInfo(t *testing.T) {
	for _, c := range []struct {
		k    bolt.KafkaSink
		want string
	}{
		{bolt.KafkaSink{}, "set Topic or TopicOf"},
		{bolt.KafkaSink{Topic: "a", TopicOf: func(*killick.Tuple) string { return "" }}, `both Topic ("a") and TopicOf`},
		{bolt.KafkaSink{Topic: "a", Codec: killick.String()}, ""},
	} {
		info, err := c.k.New().(killick.Informer).BoltInfo()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.k, err)
		}
		if info.Sink == nil || info.Sink.Topic != c.k.Topic || info.Sink.Codec != c.k.Codec {
			t.Errorf("%+v: %+v", c.k, info.Sink)
		}
	}
}
