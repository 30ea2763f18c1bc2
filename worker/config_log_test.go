package worker

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

func TestLogger(t *testing.T) {
	for _, tt := range []struct {
		name              string
		terminal, noColor bool
		format            string
		json, colour      bool
	}{
		{"terminal", true, false, "auto", false, true},
		{"terminal under NO_COLOR", true, true, "auto", false, false},
		{"pipe", false, false, "auto", true, false},
		{"console into a pipe", false, false, "console", false, false},
		{"JSON on a terminal", true, false, "json", true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("NO_COLOR", "") // zerolog looks at it by itself
			var b bytes.Buffer
			log := newLogger(&b, tt.terminal, tt.noColor, "info", tt.format)
			log.Debug().Msg("hidden")
			log.Info().Str("topic", "orders").Msg("hello")
			text := b.String()
			if strings.Contains(text, "hidden") || strings.Count(text, "\n") != 1 || !strings.Contains(text, "orders") {
				t.Errorf("got %q", text)
			}
			if got := json.Valid(b.Bytes()); got != tt.json {
				t.Errorf("JSON %v: %q", got, text)
			}
			if got := strings.Contains(text, "\x1b["); got != tt.colour {
				t.Errorf("colour %v: %q", got, text)
			}
			if tt.json {
				var line struct{ Level, Time, Message, Topic string }
				if err := json.Unmarshal(b.Bytes(), &line); err != nil {
					t.Fatal(err)
				}
				if _, err := time.Parse(time.RFC3339, line.Time); err != nil || line.Level != "info" || line.Message != "hello" {
					t.Errorf("%+v: %v", line, err)
				}
			}
		})
	}
}

func TestLoggerLevels(t *testing.T) {
	for k := range configKeys() {
		if k.name != "log.level" {
			continue
		}
		for i, level := range k.values {
			var b bytes.Buffer
			log := newLogger(&b, false, false, level, "json")
			log.Trace().Send()
			log.Debug().Send()
			log.Info().Send()
			log.Warn().Send()
			log.Error().Send()
			if got, want := strings.Count(b.String(), "\n"), 5-i; got != want {
				t.Errorf("%s: %d lines, want %d", level, got, want)
			}
		}
	}
}

func TestLoggerOfTheUser(t *testing.T) {
	var b bytes.Buffer
	own := zerolog.New(&b)
	log := Config{Logger: &own, LogLevel: "off"}.logger()
	log.Info().Msg("x")
	if b.Len() == 0 {
		t.Error("the user's logger was not used")
	}
	stderr := Config{LogLevel: "off"}.logger()
	if stderr.GetLevel() != zerolog.Disabled {
		t.Error("the level is not applied")
	}
}
