package worker

import (
	"bytes"
	"strings"
	"testing"

	"github.com/killick-io/killick"
)

// Commands that talk to nobody: what was asked for goes to stdout, what is wrong to stderr.
func TestCommands(t *testing.T) {
	secret := "KILLICK_KAFKA__SASL__PASSWORD=pa55word"
	write(t, "k.yaml", "drain: 5s\nkafka: {security_protocol: sasl_ssl, sasl: {mechanism: PLAIN, user: me}}\n")
	file := "KILLICK_CONFIG=k.yaml"
	for _, tt := range []struct {
		args     string
		env      []string
		code     int
		out, err []string // lines, or parts of lines; none: nothing is said there
	}{
		{"help", nil, 0, []string{`Runs the topology "shop"`, "config print", "--kafka.session_timeout"}, nil},
		{"--help", nil, 0, []string{`Runs the topology "shop"`}, nil},
		{"describe -h", nil, 0, []string{`Runs the topology "shop"`}, nil},
		{"validate", nil, 0, []string{`topology "shop" and configuration are valid` + "\n"}, nil},
		{"validate --drain=soon", nil, 2, nil, []string{"flag --drain", "soon"}},
		{"describe --group=g", nil, 0, []string{"topology shop, consumer group g\n", "bolt count\n"}, nil},
		{"describe", []string{"KILLICK_PREFIX=p"}, 0, []string{"consumer group p.shop\n"}, nil},
		{"describe --mermaid", nil, 0, []string{"flowchart LR\n"}, nil},
		{"describe --mermaid --drain=soon", nil, 2, nil, []string{"flag --drain"}},
		{"validate --mermaid", nil, 2, nil, []string{"unknown flag"}},
		{"config print --group=g", []string{file, secret}, 0, []string{
			"group: \"g\" # flag --group\n",
			"drain: 5s # k.yaml:1:8\n",
			"kafka.sasl.user: \"me\" # k.yaml:2:69\n",
			"kafka.sasl.password: \"***\" # env KILLICK_KAFKA__SASL__PASSWORD\n",
			"commit_interval: 1s # default\n",
		}, nil},
		{"config print", nil, 0, []string{"group: \"killick.shop\" # default\n", "# place: none # default\n"}, nil},
		{"config print --drain=soon", nil, 2, nil, []string{"flag --drain"}},
		{"config", nil, 2, nil, []string{"config print"}},
		{"config show", nil, 2, nil, []string{"config print"}},
		{"fly", nil, 2, nil, []string{`unknown command "fly"`, "describe"}},
	} {
		t.Run(tt.args, func(t *testing.T) {
			var out, errs bytes.Buffer
			code := Command(everything(), strings.Fields(tt.args), tt.env, &out, &errs)
			if code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			for _, s := range []struct {
				name, got string
				want      []string
			}{{"stdout", out.String(), tt.out}, {"stderr", errs.String(), tt.err}} {
				if len(s.want) == 0 && s.got != "" {
					t.Errorf("%s has %q", s.name, s.got)
				}
				for _, w := range s.want {
					if !strings.Contains(s.got, w) {
						t.Errorf("%s has no %q:\n%s", s.name, w, s.got)
					}
				}
				if strings.Contains(s.got, "pa55word") {
					t.Errorf("%s shows a secret", s.name)
				}
			}
		})
	}
}

// Topology and configuration are both looked at, and the configuration can be printed although the
// topology is wrong.
func TestCommandsBothWrong(t *testing.T) {
	var out, errs bytes.Buffer
	bad := func() *killick.Topology { return killick.New("no good") }
	if code := Command(bad(), []string{"validate", "--drain=soon"}, nil, &out, &errs); code != 2 || out.Len() > 0 ||
		!strings.Contains(errs.String(), "no good") || !strings.Contains(errs.String(), "--drain") {
		t.Errorf("code %d, %q", code, errs.String())
	}
	if code := Command(bad(), []string{"config", "print"}, nil, &out, &errs); code != 0 || out.Len() == 0 {
		t.Errorf("config print: code %d", code)
	}
}

// What a program sets itself counts, is checked, and is named as such.
func TestCommandsChange(t *testing.T) {
	var out, errs bytes.Buffer
	args := []string{"config", "print", "--group=g", "--http=off", "--drain=7s"}
	code := Command(everything(), args, nil, &out, &errs, func(c *Config) { c.Group, c.Place = c.Group+"2", "here" })
	if code != 0 || errs.Len() > 0 {
		t.Fatalf("code %d: %s", code, &errs)
	}
	for _, w := range []string{"group: \"g2\" # code\n", "place: \"here\" # code\n", "http: \"off\" # flag --http\n", "drain: 7s # flag --drain\n"} {
		if !strings.Contains(out.String(), w) {
			t.Errorf("no %q in\n%s", w, &out)
		}
	}
	out.Reset()
	if code := Command(everything(), args, nil, &out, &errs, func(c *Config) { c.Place = "no place" }); code != 2 || out.Len() > 0 || !strings.Contains(errs.String(), "Config.Place") {
		t.Errorf("code %d: %s", code, &errs)
	}
}
