package worker

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// A worker's lines in a user's slog: levels, message, attributes in their order, groups.
func TestLogsIntoSlog(t *testing.T) {
	var b bytes.Buffer
	level := new(slog.LevelVar)
	level.Set(slog.LevelDebug)
	h := slog.NewTextHandler(&b, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
			return slog.Attr{}
		}
		return a
	}})
	c := Config{Slog: slog.New(h), LogLevel: "error"} // which is ignored
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	log := c.logger().With().Str("topology", "t").Logger()
	log.Trace().Msg("hidden")
	log.Debug().Msg("d")
	e := log.Info()
	e.Int64("z", 1<<62).Float64("a", 1.5).Bool("ok", true).Err(errors.New("bad")).Dict("in", e.CreateDict().Str("x", "y").Dict("deep", e.CreateDict().Int("n", 1))).
		Strs("list", []string{"p", "q"}).Interface("nothing", nil).Msg(`a "quoted" message`)
	log.Warn().Msg("w")
	log.Error().Msg("e")
	log.Log().Msg("no level")
	want := `level=DEBUG msg=d topology=t
level=INFO msg="a \"quoted\" message" topology=t z=4611686018427387904 a=1.5 ok=true error=bad in.x=y in.deep.n=1 list="[p q]" nothing=<nil>
level=WARN msg=w topology=t
level=ERROR msg=e topology=t
level=INFO msg="no level" topology=t
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", &b, want)
	}
	b.Reset()
	level.Set(slog.LevelError) // a level may change while the worker runs
	log.Warn().Msg("hidden")
	if b.Len() > 0 {
		t.Errorf("below the level: %s", &b)
	}
	if _, err := (slogWriter{h}).WriteLevel(zerolog.ErrorLevel, []byte("not JSON\n")); err != nil || b.String() != "level=ERROR msg=\"not JSON\"\n" {
		t.Errorf("%v, %q", err, &b)
	}
	if c.SlogHandler() != h {
		t.Error("the other way is another handler")
	}
}

// A user's slog in the worker's log.
func TestSlogIntoLogs(t *testing.T) {
	var b bytes.Buffer
	zl := zerolog.New(&b).Level(zerolog.DebugLevel)
	log := slog.New(Config{Logger: &zl}.SlogHandler())
	log.Log(t.Context(), slog.LevelDebug-4, "hidden")
	log.Debug("d")
	log.Info("i", "s", "x", "n", -1, "u", uint64(1), "f", 1.5, "ok", true, "d", 2*time.Second, "at", time.Unix(0, 0).UTC(), "err", errors.New("bad"),
		"any", []int{1}, "nil", nil, "secret", NewSecret("pa55"), slog.Group("g", "a", 1, slog.Group("h", "b", 2)), slog.Group("", "c", 3), slog.Group("empty"), slog.Attr{})
	log.With("before", 1).WithGroup("g").With("in", 2).WithGroup("h").Warn("w", "deep", 3)
	log.WithGroup("g").With("in", 2).WithGroup("empty").WithGroup("").Error("e")
	two := log.WithGroup("g") // handlers that share a parent do not share what they add
	two.With("a", 1).Info("1")
	two.With("b", 2).Info("2")
	want := `{"level":"debug","message":"d"}
{"level":"info","s":"x","n":-1,"u":1,"f":1.5,"ok":true,"d":2000,"at":"1970-01-01T00:00:00Z","err":"bad","any":[1],"nil":null,"secret":"***","g":{"a":1,"h":{"b":2}},"c":3,"message":"i"}
{"level":"warn","before":1,"g":{"in":2,"h":{"deep":3}},"message":"w"}
{"level":"error","g":{"in":2},"message":"e"}
{"level":"info","g":{"a":1},"message":"1"}
{"level":"info","g":{"b":2},"message":"2"}
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", &b, want)
	}
	if log.Enabled(t.Context(), slog.LevelDebug-1) || !log.Enabled(t.Context(), slog.LevelDebug) {
		t.Error("Enabled does not go by the logger's level")
	}
}

func TestTwoLoggers(t *testing.T) {
	log := zerolog.Nop()
	err := Config{Logger: &log, Slog: slog.Default()}.Validate()
	if err == nil || !strings.Contains(err.Error(), "Config.Slog: Logger is set as well; one of them") {
		t.Errorf("%v", err)
	}
}
