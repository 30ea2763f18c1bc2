package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"go.yaml.in/yaml/v3"
)

// canary is the secret that must not be found anywhere.
const canary = "canary-7f3a"

// TestSecretNeverPrints prints a Secret, and a Config with one, in every way
// that a program is likely to.
func TestSecretNeverPrints(t *testing.T) {
	secret := NewSecret(canary)
	config := Config{SecurityProtocol: "sasl_ssl", Logger: new(zerolog.Logger),
		Kafka: []kgo.Opt{kgo.SASL(plain.Auth{User: "u", Pass: canary}.AsMechanism())},
		SASL:  SASL{Mechanism: "PLAIN", User: "u", Password: secret}}
	type hidden struct { // fmt calls no methods below here
		s Secret
		c Config
	}
	values := map[string]any{
		"secret": secret, "pointer": &secret, "config": config, "config pointer": &config, "sasl": config.SASL,
		"slice": []any{secret, config}, "map": map[string]Secret{"k": secret},
		"hidden": hidden{secret, config}, "hidden pointer": &hidden{secret, config}, "struct": struct{ C Config }{config},
	}
	for name, v := range values {
		printed := map[string]string{}
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T", "%p"} {
			printed[verb] = fmt.Sprintf(verb, v)
		}
		j, err := json.Marshal(v)
		if err != nil {
			t.Errorf("json of %s: %v", name, err)
		}
		printed["json"] = string(j)
		y, err := yaml.Marshal(v)
		if err != nil {
			t.Errorf("yaml of %s: %v", name, err)
		}
		printed["yaml"] = string(y)
		var z, s bytes.Buffer
		log := zerolog.New(&z)
		log.Info().Interface("v", v).Any("a", v).Fields(map[string]any{"f": v}).Msgf("%v %+v", v, v)
		printed["zerolog"] = z.String()
		slog.New(slog.NewJSONHandler(&s, nil)).Info("x", "v", v)
		slog.New(slog.NewTextHandler(&s, nil)).Info("x", "v", v)
		printed["slog"] = s.String()
		printed["error"] = fmt.Errorf("bad: %v", v).Error()
		for how, text := range printed {
			if strings.Contains(text, canary) || strings.Contains(text, fmt.Sprintf("%x", canary)) || strings.Contains(text, fmt.Sprintf("%X", canary)) {
				t.Errorf("%s by %s shows the secret: %s", name, how, text)
			}
		}
	}
	for verb, want := range map[string]string{"%v": "***", "%+v": "***", "%s": "***", "%q": `"***"`, "%#v": `worker.Secret("***")`} {
		if got := fmt.Sprintf(verb, secret); got != want {
			t.Errorf("%s: got %s, want %s", verb, got, want)
		}
	}
	if j, _ := json.Marshal(config); !bytes.Contains(j, []byte(`"Password":"***"`)) {
		t.Errorf("json shows no *** for a set secret: %s", j)
	}
	if s := config.String(); !strings.Contains(s, `kafka.sasl.password: "***"`) {
		t.Errorf("String shows no *** for a set secret: %s", s)
	}
}

func TestSecret(t *testing.T) {
	var unset Secret
	if unset.IsSet() || NewSecret("").IsSet() || unset.Reveal() != "" || fmt.Sprint(unset) != "" {
		t.Error("the zero Secret is not unset")
	}
	s := NewSecret(canary)
	if !s.IsSet() || s.Reveal() != canary || !s.Equal(NewSecret(canary)) || s.Equal(unset) {
		t.Error("a Secret does not hold its text")
	}
}

// TestMistakesNeverShowSecrets gives secrets to every place where a mistake
// could repeat them.
func TestMistakesNeverShowSecrets(t *testing.T) {
	write(t, "k.yaml", "drain: ${PW}\nkafka:\n  sasl.password: [\"${PW}\"]\n  ssl.key.password: "+canary+"\n  sasl.jaas.config: x password="+canary+"\n")
	write2 := []string{"PW=" + canary, "KILLICK_KAFKA__SASL__PASSWORD=" + canary, "KILLICK_KAFKA__SASL__PASSWRD=" + canary, "KILLICK_CONFIG=k.yaml"}
	_, err := Load([]string{"--kafka.sasl.password=" + canary, "--sasl.password", canary, "--bootstrap=u:" + canary + "@host:1:2"}, write2)
	if err == nil {
		t.Fatal("no error")
	}
	if got := len(lines(t, err)); got < 8 {
		t.Errorf("only %d mistakes: %v", got, err)
	}
	if strings.Contains(err.Error(), canary) {
		t.Error(err)
	}
}

func TestErrorForms(t *testing.T) {
	one := Config{Drain: -1}.Validate()
	if got, want := one.Error(), `worker: invalid configuration: Config.Drain: "-1ns" is negative; at least 1ms`; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	two := Config{Drain: -1, HTTP: "x"}.Validate()
	want := "worker: invalid configuration: 2 mistakes\n" +
		`  Config.Drain: "-1ns" is negative; at least 1ms` + "\n" +
		`  Config.HTTP: "x" is not host:port; write 127.0.0.1:8080, :8080 for all interfaces, or off`
	if got := two.Error(); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if !errors.Is(one, ErrConfig) || !errors.Is(two, ErrConfig) {
		t.Error("does not match ErrConfig")
	}
	m, ok := errors.AsType[*mistake](two)
	if !ok || m.place != "Config.Drain" {
		t.Errorf("first mistake %v", m)
	}
}

// TestCommentsSayTheDefault compares each field's comment with the table and
// with withDefaults, and finds fields without key.
func TestCommentsSayTheDefault(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "config.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	comments := map[string]string{} // "TLS.CAFile" -> comment
	prefix := map[string]string{"Config": "", "Topics": "Topics.", "TLS": "TLS.", "SASL": "SASL."}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if s, ok := spec.Type.(*ast.StructType); ok {
			for _, f := range s.Fields.List {
				for _, name := range f.Names {
					comments[prefix[spec.Name.Name]+name.Name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
				}
			}
		}
		return true
	})
	ending := regexp.MustCompile(` Default: (.*)\.$`)
	keys := map[string]*key{}
	for k := range configKeys() {
		keys[k.field] = k
	}
	for field, comment := range comments {
		switch field {
		case "origins", "logTo", "Topics", "TLS", "SASL": // internal, and structs whose fields have their own
			continue
		}
		m := ending.FindStringSubmatch(comment)
		if m == nil {
			t.Errorf("the comment of %s does not end with its default: %s", field, comment)
			continue
		}
		switch k := keys[field]; {
		case field == "Kafka", field == "Logger", field == "Slog": // not in files
		case k == nil:
			t.Errorf("field %s has no key", field)
		case field == "Topics.NoCreate", field == "NoProgress": // inverted
			if m[1] != "false" || k.defaultText() != "true" {
				t.Errorf("NoCreate: %s, key %s", m[1], k.defaultText())
			}
		case m[1] != k.defaultText():
			t.Errorf("%s: comment says %q, the default is %q", field, m[1], k.defaultText())
		}
	}
}

// TestKeysAreSound checks the table: one field per key, names that cannot be
// taken for each other, defaults inside the range.
func TestKeysAreSound(t *testing.T) {
	var c Config
	seen := map[string]string{}
	pointers := map[any]string{}
	for k := range configKeys() {
		for _, n := range []string{"name " + k.name, "env " + k.env(), "field " + k.field, "flag " + k.flag(), "java " + k.java} {
			if before := seen[n]; before != "" && n != "java " {
				t.Errorf("%s and %s share %s", before, k.name, n)
			}
			seen[n] = k.name
		}
		p := k.ptr(&c)
		if before := pointers[p]; before != "" {
			t.Errorf("%s and %s share a field", before, k.name)
		}
		pointers[p] = k.name
		// The field named for mistakes is the one that ptr returns.
		v := reflect.ValueOf(&c).Elem()
		for part := range strings.SplitSeq(k.field, ".") {
			v = v.FieldByName(part)
		}
		if v.Addr().Pointer() != reflect.ValueOf(p).Pointer() {
			t.Errorf("%s: field %s is not what ptr returns", k.name, k.field)
		}
		if k.name != strings.ToLower(k.name) || k.help == "" {
			t.Errorf("%s: lower case and a help text, please", k.name)
		}
		if lookupKey(k.name).name != k.name || lookupJava("kafka."+k.java) != nil && lookupJava("kafka."+k.java).name != k.name {
			t.Errorf("%s is not found", k.name)
		}
		if _, refused := lookupRule("kafka." + k.java); refused {
			t.Errorf("%s is accepted and refused", k.java)
		}
	}
	if lookupJava("kafka.") != nil {
		t.Error("an empty Java name is found")
	}
	rules := map[string]bool{}
	for _, r := range javaRules() {
		if rules[r.name] || r.why == "" {
			t.Errorf("rule %s twice, or without a reason", r.name)
		}
		rules[r.name] = true
	}
}

func TestShortForms(t *testing.T) {
	for n, want := range map[int64]string{0: "0B", 1: "1B", 1024: "1KiB", 1536: "1536B", 3 << 20: "3MiB", 1 << 40: "1024GiB", -1024: "-1KiB"} {
		if got := shortBytes(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	for _, s := range []string{"1m", "1m30s", "1h", "1h30m", "1h0m5s", "500ms", "10s", "0s", "100h"} {
		n, wrong := parseDuration(s, false, s)
		if wrong != "" {
			t.Fatal(wrong)
		}
		if got := shortDuration(time.Duration(n)); got != s {
			t.Errorf("%s printed as %s", s, got)
		}
	}
}
