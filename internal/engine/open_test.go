package engine

import (
	"testing"

	"github.com/killick-io/killick/internal/core"
)

func TestUserLine(t *testing.T) {
	const head = "1 @ 0x47 0x48\n# labels: {\"killick_runner\":\"3\"}\n"
	const exec = "#\t0x4a\tgithub.com/killick-io/killick/internal/engine.(*exec).execute+0x55\t/src/killick/internal/engine/exec.go:214\n"
	const adapter = "#\t0x4a\tgithub.com/killick-io/killick/bolt.execute.Execute+0x55\t/src/killick/bolt/func.go:20\n"
	const wait = "#\t0x47\truntime.gopark+0x11\t/usr/lib/go/src/runtime/proc.go:460\n#\t0x48\ttime.Sleep+0x55\t/usr/lib/go/src/runtime/time.go:363\n"
	const user = "#\t0x49\texample.com/shop/pay.(*Bolt).charge+0x1b\t/src/shop/pay/pay.go:33\n#\t0x49\texample.com/shop/pay.(*Bolt).Execute+0x1b\t/src/shop/pay/pay.go:12\n"
	for name, tt := range map[string]struct{ stack, want string }{
		"a bolt of one's own":    {head + wait + user + exec, "pay.(*Bolt).Execute pay.go:12"},
		"under an adapter":       {head + wait + user + adapter + exec, "pay.(*Bolt).Execute pay.go:12"},
		"main":                   {head + "#\t0x49\tmain.main.func1+0x1b\tC:/shop/main.go:9\n" + exec, "main.main.func1 main.go:9"},
		"killick's examples":     {head + "#\t0x49\tgithub.com/killick-io/killick/examples/orders.work+0x1b\t/a/o.go:9\n" + exec, "orders.work o.go:9"},
		"nothing between":        {head + exec, ""},
		"no stack":               {"", ""},
		"no frame of the engine": {head + wait + user, ""},
	} {
		if got := userLine([]byte(tt.stack)); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// smallChunk is a chunk of n records, as far as an origin is asked for. Like a partition's it refuses others.
type smallChunk struct {
	Chunk
	n int
}

func (c smallChunk) Origin(i int) core.Origin {
	if i < 0 || i >= c.n {
		panic("no such record")
	}
	return core.Origin{Topic: "in", Offset: int64(i)}
}

// TestOriginAtTheBegin: who asks what an execution is at, in the moment at which it begins with a chunk
// or a batch, is not told of the record that it was at in the one before, which this one may not have.
func TestOriginAtTheBegin(t *testing.T) {
	x := &exec{}
	x.pos.set(100) // of a large batch
	want := func(offset int64, ok bool) {
		t.Helper()
		if o, has := x.origin(); has != ok || o.Offset != offset {
			t.Errorf("it is at %+v, %v; want offset %d, %v", o, has, offset, ok)
		}
	}
	c := smallChunk{n: 3}
	f := &frame{run: Run{Chunk: c, From: 1, To: 3}}
	x.beginAt(f, nil, f.run.From)
	want(1, true)
	x.beginAt(nil, nil, 0)
	want(0, false)
	x.pos.set(100)
	x.beginAt(nil, &batch{items: []item{{chunk: c, i: 2}, {chunk: c, i: 1}}}, 1)
	want(1, true)
	x.beginAt(nil, &batch{items: []item{{loose: true}}}, 0)
	want(0, false)
}
