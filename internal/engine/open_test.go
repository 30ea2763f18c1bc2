package engine

import "testing"

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
