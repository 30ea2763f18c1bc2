package worker

import (
	"sync/atomic"

	"github.com/rs/zerolog"
)

// gate lets log lines of a level through that may change while the worker runs.
type gate struct {
	w     *lostLines
	least atomic.Int32 // a zerolog.Level
}

// Write implements io.Writer, for lines without a level.
func (g *gate) Write(p []byte) (int, error) { return g.WriteLevel(zerolog.NoLevel, p) }

// WriteLevel implements zerolog.LevelWriter.
func (g *gate) WriteLevel(l zerolog.Level, p []byte) (int, error) {
	if l < zerolog.Level(g.least.Load()) {
		return len(p), nil
	}
	return g.w.Write(p)
}

// zerologLevel is the level of a name that Validate lets through.
func zerologLevel(name string) zerolog.Level {
	if name == "off" {
		return zerolog.Disabled
	}
	l, err := zerolog.ParseLevel(name)
	if err != nil {
		return zerolog.InfoLevel
	}
	return l
}

// reload takes over from c what may change while the worker runs, which is the log level, and says of
// what else has changed that it wants a restart. p.cfg is what counts.
func (p *program) reload(w *Worker) {
	c, err := p.load()
	if err != nil {
		w.log.Error().Err(err).Msg("SIGHUP: the configuration is not sound, and the one before goes on")
		return
	}
	old, now := p.cfg.withDefaults(), c.withDefaults()
	changed := 0
	for k := range configKeys() {
		same := k.isSet(&old) == k.isSet(&now) && k.text(&old) == k.text(&now)
		if same && k.isSecret() {
			same = k.ptr(&old).(*Secret).Equal(*k.ptr(&now).(*Secret))
		}
		switch {
		case same:
			continue
		case k.name == "log.level" && w.gate != nil:
			w.gate.least.Store(int32(zerologLevel(now.LogLevel)))
			p.cfg.LogLevel = now.LogLevel
			w.log.Info().Str("level", now.LogLevel).Msg("SIGHUP: the log level has changed")
		default:
			w.log.Warn().Str("key", k.name).Str("old", k.text(&old)).Str("new", k.text(&now)).Msg("SIGHUP: a setting has changed that counts only after a restart")
		}
		changed++
	}
	if changed == 0 {
		w.log.Info().Msg("SIGHUP: the configuration has not changed; certificates and password files are read at each connection anyway")
	}
}
