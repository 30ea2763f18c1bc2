package killick_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/killick-io/killick"
)

type item struct {
	Name string `json:"name"`
	N    int    `json:"n"`
}

func TestJSON(t *testing.T) {
	c := killick.JSON[item]()
	if c.Type() != reflect.TypeFor[item]() {
		t.Errorf("Type() = %v", c.Type())
	}
	b, err := c.Encode(item{"a", 1})
	if err != nil || string(b) != `{"name":"a","n":1}` {
		t.Errorf("Encode: %s, %v", b, err)
	}
	for in, want := range map[string]string{
		`{"name":"a","n":1}`:          "",
		" {\"name\":\"a\",\"n\":1}\n": "",
		`{"name":"a","n":1} {}`:       "data after the JSON value",
		`{"name":"a","n":1}]`:         "data after the JSON value",
		`{"name":"a","n":1}x`:         "data after the JSON value",
		`{"name":"a"`:                 "unexpected EOF",
		``:                            "EOF",
		`{"name":1}`:                  "cannot unmarshal number",
	} {
		v, err := c.Decode([]byte(in))
		if want == "" {
			if err != nil || v != any(item{"a", 1}) {
				t.Errorf("%q: %v, %v", in, v, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want an error with %q", in, v, err, want)
		}
	}
	// Another type is refused, a pointer to the right one too.
	for _, v := range []any{&item{}, "text", 7, nil, []byte("{}")} {
		if _, err := c.Encode(v); err == nil || !strings.Contains(err.Error(), "killick_test.item") {
			t.Errorf("Encode(%T): %v", v, err)
		}
	}
	if _, err := killick.JSON[func()]().Encode(func() {}); err == nil {
		t.Error("a function was encoded")
	}
}

func TestBytesAndString(t *testing.T) {
	b := killick.Bytes()
	for _, in := range [][]byte{nil, {}, {0xff, 0}} {
		e, err := b.Encode(in)
		if err != nil || !bytes.Equal(e, in) || (e == nil) != (in == nil) {
			t.Errorf("Encode(%v): %v, %v", in, e, err)
		}
		d, err := b.Decode(in)
		if got := d.([]byte); err != nil || !bytes.Equal(got, in) || (got == nil) != (in == nil) {
			t.Errorf("Decode(%v): %v, %v", in, d, err)
		}
	}
	s := killick.String()
	for _, in := range []string{"", "plain", "Zoë \u0000"} {
		e, err := s.Encode(in)
		if err != nil || string(e) != in || e == nil {
			t.Errorf("Encode(%q): %v, %v", in, e, err)
		}
		if d, err := s.Decode([]byte(in)); err != nil || d != in {
			t.Errorf("Decode(%q): %v, %v", in, d, err)
		}
	}
	for _, in := range []string{"\xff", "a\xc3", "\xed\xa0\x80"} {
		if _, err := s.Encode(in); err == nil || !strings.Contains(err.Error(), "UTF-8") {
			t.Errorf("Encode(%q): %v", in, err)
		}
		if v, err := s.Decode([]byte(in)); err == nil || !strings.Contains(err.Error(), "UTF-8") {
			t.Errorf("Decode(%q): %v, %v", in, v, err)
		}
	}
}

func number() killick.Codec {
	return killick.NewCodec(
		func(n uint64) ([]byte, error) { return binary.BigEndian.AppendUint64(nil, n), nil },
		func(b []byte) (uint64, error) {
			if len(b) != 8 {
				return 0, fmt.Errorf("%d bytes, not 8", len(b))
			}
			return binary.BigEndian.Uint64(b), nil
		})
}

func TestNewCodec(t *testing.T) {
	c := number()
	b, err := c.Encode(uint64(258))
	if err != nil || !bytes.Equal(b, []byte{0, 0, 0, 0, 0, 0, 1, 2}) {
		t.Errorf("%v, %v", b, err)
	}
	if _, err := c.Encode(258); err == nil || err.Error() != "killick: the codec encodes uint64, not int" {
		t.Errorf("%v", err)
	}
	if _, err := c.Decode([]byte{1}); err == nil {
		t.Error("short bytes were decoded")
	}
	boom := errors.New("boom")
	c = killick.NewCodec(func(int) ([]byte, error) { return nil, boom }, func([]byte) (int, error) { return 0, boom })
	if _, err := c.Encode(1); !errors.Is(err, boom) {
		t.Errorf("%v", err)
	}
	if _, err := c.Decode(nil); !errors.Is(err, boom) {
		t.Errorf("%v", err)
	}
}

// Codecs have no state, so that one may serve all tasks.
func TestCodecsConcurrently(t *testing.T) {
	cases := []struct {
		c killick.Codec
		v func(i int) any
	}{
		{killick.JSON[item](), func(i int) any { return item{fmt.Sprint(i), i} }},
		{killick.String(), func(i int) any { return fmt.Sprint(i) }},
		{killick.Bytes(), func(i int) any { return fmt.Append(nil, i) }},
		{number(), func(i int) any { return uint64(i) }},
	}
	var wg sync.WaitGroup
	for g := range 8 {
		for _, c := range cases {
			wg.Go(func() {
				for i := g * 1000; i < g*1000+200; i++ {
					b, err := c.c.Encode(c.v(i))
					if err != nil {
						t.Error(err)
						return
					}
					if v, err := c.c.Decode(b); err != nil || !reflect.DeepEqual(v, c.v(i)) {
						t.Errorf("%v became %v, %v", c.v(i), v, err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
}

// Whatever is decoded encodes again, to something that decodes to the same.
func FuzzCodecs(f *testing.F) {
	for _, s := range []string{"", "{}", `{"name":"a","n":1}`, "\xff", "null", `{"n":1}{`, "[1,2]"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, c := range []killick.Codec{killick.JSON[item](), killick.JSON[any](), killick.String(), killick.Bytes(), number()} {
			v, err := c.Decode(b)
			if err != nil || v == nil {
				continue
			}
			e, err := c.Encode(v)
			if err != nil {
				t.Fatalf("%v: %q was decoded to %v, which does not encode: %v", c.Type(), b, v, err)
			}
			if again, err := c.Decode(e); err != nil || !reflect.DeepEqual(again, v) {
				t.Fatalf("%v: %q became %v and then %v, %v", c.Type(), b, v, again, err)
			}
		}
		if _, err := killick.String().Decode(b); (err == nil) != utf8.Valid(b) {
			t.Fatalf("%q: %v", b, err)
		}
	})
}
