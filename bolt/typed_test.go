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
)

type order struct {
	ID    string
	Cents int
}

// try runs one bolt on one message.
func try(t *testing.T, f killick.BoltFactory, m killick.Message) ([]killick.Message, error) {
	t.Helper()
	r, err := testenv.Execute(t.Context(), f(), m)
	return r.Emitted(""), err
}

func pass[T any]() killick.BoltFactory {
	return bolt.Map(func(_ context.Context, v T) (T, error) { return v, nil })
}

func TestMapCarries(t *testing.T) {
	f := bolt.Map(func(_ context.Context, o order) (int, error) { return o.Cents, nil })
	m := killick.Message{Key: []byte("k"), Value: order{"1", 250}, Time: time.UnixMilli(77),
		Headers: []killick.Header{{Key: "h", Value: []byte("1")}, {Key: "h", Value: nil}}}
	out, err := try(t, f, m)
	if err != nil || len(out) != 1 {
		t.Fatalf("%v, %v", out, err)
	}
	if o := out[0]; o.Value != 250 || o.Bytes != nil || string(o.Key) != "k" || !o.Time.Equal(m.Time) || !reflect.DeepEqual(o.Headers, m.Headers) {
		t.Errorf("%+v", o)
	}
	// An empty key and no key stay different.
	for _, key := range [][]byte{nil, {}} {
		if out, _ := try(t, f, killick.Message{Key: key, Value: order{}}); !same(out[0].Key, key) {
			t.Errorf("key %#v became %#v", key, out[0].Key)
		}
	}
	boom := errors.New("boom")
	f = bolt.Map(func(context.Context, order) (int, error) { return 1, boom })
	if out, err := try(t, f, m); !errors.Is(err, boom) || len(out) != 0 {
		t.Errorf("%v, %v", out, err)
	}
}

// A null value is nil for types that have one, and a permanent failure for others; what is nil
// goes out as a null value again.
func TestNullValues(t *testing.T) {
	for name, f := range map[string]killick.BoltFactory{
		"pointer":   pass[*order](),
		"slice":     pass[[]string](),
		"map":       pass[map[string]int](),
		"interface": pass[any](),
		"bytes":     pass[[]byte](),
		"filter":    bolt.Filter(func(_ context.Context, v *order) (bool, error) { return v == nil, nil }),
		"flatmap":   bolt.FlatMap(func(_ context.Context, v *order, emit func(*order)) error { emit(v); return nil }),
	} {
		out, err := try(t, f, killick.Message{Key: []byte("k")})
		if err != nil || len(out) != 1 || out[0].Value != nil || out[0].Bytes != nil {
			t.Errorf("%s: %+v, %v", name, out, err)
		}
	}
	for name, f := range map[string]killick.BoltFactory{
		"struct": pass[order](), "string": pass[string](), "int": pass[int](), "array": pass[[2]byte](),
	} {
		out, err := try(t, f, killick.Message{})
		if !killick.IsPermanent(err) || len(out) != 0 || !strings.Contains(err.Error(), "take a pointer") {
			t.Errorf("%s: %v, %v", name, out, err)
		}
	}
}

func TestBytesOfAnyStream(t *testing.T) {
	for _, b := range [][]byte{nil, {}, []byte("x")} {
		out, err := try(t, pass[[]byte](), killick.Message{Bytes: b})
		if err != nil || len(out) != 1 || out[0].Value != nil || !same(out[0].Bytes, b) {
			t.Errorf("%#v: %+v, %v", b, out, err)
		}
	}
	// The raw bytes of a stream whose values have another type.
	if out, err := try(t, pass[[]byte](), killick.Message{Value: "text"}); err != nil || string(out[0].Bytes) != "text" {
		t.Errorf("%+v, %v", out, err)
	}
}

// In a topology: the bytes are those that were read, and a filter of bytes passes the value on.
func TestBytesInTopology(t *testing.T) {
	spaced := []byte(` {"Cents":7, "ID":"a"} `)
	top := killick.New("raw")
	top.Spout("in", spout.KafkaSource{Topics: []string{"in"}, Codec: killick.JSON[order]()})
	top.Bolt("raw", pass[[]byte]()).Shuffle("in")
	top.Bolt("keep", bolt.Filter(func(_ context.Context, b []byte) (bool, error) { return len(b) == len(spaced), nil })).
		Shuffle("in").Stream("", killick.JSON[order]())
	top.Bolt("cents", bolt.Map(func(_ context.Context, o order) (string, error) { return fmt.Sprint(o.Cents), nil })).Shuffle("keep")
	// Bytes on a stream with a codec are decoded.
	top.Bolt("encodes", bolt.Map(func(_ context.Context, o order) ([]byte, error) {
		return fmt.Appendf(nil, `{"Cents":%d}`, o.Cents+1), nil
	})).
		Shuffle("in").Stream("", killick.JSON[order]())
	top.Bolt("decoded", bolt.Map(func(_ context.Context, o order) (string, error) { return fmt.Sprint(o.Cents), nil })).Shuffle("encodes")
	r := testenv.Run(t, top, testenv.Feed("in", killick.Message{Bytes: spaced}, killick.Message{Value: order{"b", 1}}))
	if got := r.Emitted("decoded"); len(got) != 2 || got[0].Value != "8" || got[1].Value != "2" {
		t.Errorf("decoded: %+v", got)
	}
	if got := r.Emitted("raw"); len(got) != 2 || string(got[0].Bytes) != string(spaced) || string(got[1].Bytes) != `{"ID":"b","Cents":1}` {
		t.Errorf("raw: %+v", got)
	}
	if got := r.Emitted("cents"); len(got) != 1 || got[0].Value != "7" || r.Acked("in") != 2 {
		t.Errorf("cents: %+v; dead: %+v", got, r.DeadLetters())
	}
}

func TestWrongType(t *testing.T) {
	for _, v := range []any{"text", &order{}, 7} {
		out, err := try(t, pass[order](), killick.Message{Value: v})
		if !killick.IsPermanent(err) || len(out) != 0 || !strings.Contains(err.Error(), fmt.Sprintf("is a %T, not a bolt_test.order", v)) {
			t.Errorf("%T: %v, %v", v, out, err)
		}
	}
	if _, err := try(t, pass[fmt.Stringer](), killick.Message{Value: "no stringer"}); !killick.IsPermanent(err) {
		t.Errorf("%v", err)
	}
	if out, err := try(t, pass[fmt.Stringer](), killick.Message{Value: time.Second}); err != nil || out[0].Value != time.Second {
		t.Errorf("%v, %v", out, err)
	}
}

func TestFlatMap(t *testing.T) {
	var leaked func(string)
	f := bolt.FlatMap(func(_ context.Context, s string, emit func(string)) error {
		leaked = emit
		for w := range strings.FieldsSeq(s) {
			emit(w)
		}
		if strings.HasSuffix(s, "!") {
			return errors.New("not like that")
		}
		return nil
	})
	r, err := testenv.Execute(t.Context(), f(), killick.Message{Key: []byte("k"), Value: "one two three"})
	leaked("late") // dropped and counted
	if n := r.Misuse(); n != 1 {
		t.Errorf("misuse %d", n)
	}
	out := r.Emitted("")
	if err != nil || len(out) != 3 || out[0].Value != "one" || out[2].Value != "three" || string(out[1].Key) != "k" {
		t.Errorf("%+v, %v", out, err)
	}
	if out, err := try(t, f, killick.Message{Value: "one two !"}); err == nil || len(out) != 0 {
		t.Errorf("%+v, %v: what a failed try emits is dropped", out, err)
	}
	if out, err := try(t, f, killick.Message{Value: ""}); err != nil || len(out) != 0 {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestFilter(t *testing.T) {
	f := bolt.Filter(func(_ context.Context, o order) (bool, error) {
		if o.Cents < 0 {
			return true, errors.New("negative")
		}
		return o.Cents > 100, nil
	})
	m := killick.Message{Key: []byte("k"), Value: order{"1", 250}, Headers: []killick.Header{{Key: "h"}}}
	if out, err := try(t, f, m); err != nil || len(out) != 1 || out[0].Value != m.Value || len(out[0].Headers) != 1 || string(out[0].Key) != "k" {
		t.Errorf("%+v, %v", out, err)
	}
	if out, err := try(t, f, killick.Message{Value: order{"1", 5}}); err != nil || len(out) != 0 {
		t.Errorf("%+v, %v", out, err)
	}
	if out, err := try(t, f, killick.Message{Value: order{"1", -5}}); err == nil || len(out) != 0 {
		t.Errorf("%+v, %v", out, err)
	}
}

// Types are known to the builder, those of interfaces excepted.
func TestTypedInfo(t *testing.T) {
	for _, c := range []struct {
		f       killick.BoltFactory
		in, out reflect.Type
		raw     bool
	}{
		{bolt.Map(func(context.Context, order) (*order, error) { return nil, nil }), reflect.TypeFor[order](), reflect.TypeFor[*order](), false},
		{bolt.Map(func(context.Context, any) (error, error) { return nil, nil }), nil, nil, false},
		{bolt.FlatMap(func(context.Context, []byte, func(int)) error { return nil }), nil, reflect.TypeFor[int](), true},
		{bolt.Filter(func(context.Context, string) (bool, error) { return false, nil }), reflect.TypeFor[string](), reflect.TypeFor[string](), false},
		// A filter passes on what comes, of whatever type.
		{bolt.Filter(func(context.Context, []byte) (bool, error) { return false, nil }), nil, nil, true},
	} {
		info, err := c.f().(killick.Informer).BoltInfo()
		if err != nil || info.In != c.in || info.Out != c.out || info.Raw != c.raw {
			t.Errorf("%v -> %v, raw %v (%v), want %v -> %v, raw %v", info.In, info.Out, info.Raw, err, c.in, c.out, c.raw)
		}
	}
	for name, f := range map[string]killick.BoltFactory{
		"Map":     bolt.Map[int, int](nil),
		"FlatMap": bolt.FlatMap[int, int](nil),
		"Filter":  bolt.Filter[int](nil),
		"Async":   bolt.Async(3, nil),
		"Batch":   bolt.Batch(3, time.Second, nil),
		"Func":    bolt.Func(nil),
	} {
		if f != nil {
			t.Errorf("%s of nil is a factory: validation would not name it", name)
		}
	}
}

// In a topology with codecs: null values pass by, what cannot be decoded or is of another type
// is a dead letter at once.
func TestTypedInTopology(t *testing.T) {
	double := bolt.Map(func(_ context.Context, o *order) (*order, error) {
		if o == nil {
			return nil, nil
		}
		return &order{o.ID, 2 * o.Cents}, nil
	})
	top, _ := line(double, killick.JSON[*order](), killick.JSON[*order]())
	r := testenv.Run(t, top, testenv.Feed("in",
		killick.Message{Key: []byte("a"), Value: &order{"a", 1}},
		killick.Message{Key: []byte("gone")},
		killick.Message{Key: []byte("bad"), Bytes: []byte("{")},
		killick.Message{Key: []byte("b"), Bytes: []byte(`{"ID":"b","Cents":4}`)},
	))
	got := r.Written("out")
	if len(got) != 3 || string(got[0].Bytes) != `{"ID":"a","Cents":2}` || got[1].Bytes != nil || string(got[1].Key) != "gone" || string(got[2].Bytes) != `{"ID":"b","Cents":8}` {
		t.Errorf("written: %q", got)
	}
	if d := r.DeadLetters(); len(d) != 1 || string(d[0].Bytes) != "{" || d[0].Reason != "decode" || d[0].Attempts != 1 {
		t.Errorf("dead: %+v", d)
	}
}
