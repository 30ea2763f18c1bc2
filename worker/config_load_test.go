package worker

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// lines gives the mistakes of an error, one text each.
func lines(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	if !errors.Is(err, ErrConfig) {
		t.Fatalf("error does not match ErrConfig: %v", err)
	}
	bad, ok := errors.AsType[*configError](err)
	if !ok {
		t.Fatalf("error of type %T", err)
	}
	var out []string
	for _, m := range bad.all {
		out = append(out, m.Error())
	}
	return out
}

// write puts a file into a temporary folder and changes to it, so that places
// have short names.
func write(t *testing.T, name, text string) {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLoadNothingIsTheDefault(t *testing.T) {
	c, err := Load(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.String(), (Config{}).String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if err := (Config{}).Validate(); err != nil {
		t.Errorf("the zero Config is not valid: %v", err)
	}
}

// TestLoadPrecedence sets the same keys in all places, one place less each time.
func TestLoadPrecedence(t *testing.T) {
	write(t, "k.yaml", "group: file\ndrain: 1s\nplace: file\nkafka:\n  client_id: file\n")
	env := []string{"KILLICK_CONFIG=k.yaml", "KILLICK_GROUP=env", "KILLICK_DRAIN=2s", "KILLICK_PLACE=env", "KILLICK_HTTP="}
	c, err := Load([]string{"--group=flag", "-drain", "3s"}, env)
	if err != nil {
		t.Fatal(err)
	}
	type row struct{ value, origin string }
	got := map[string]row{
		"group":           {c.Group, c.Origin("group")},
		"drain":           {c.Drain.String(), c.Origin("drain")},
		"place":           {c.Place, c.Origin("place")},
		"kafka.client_id": {c.ClientID, c.Origin("kafka.client_id")},
		"http":            {c.HTTP, c.Origin("http")},
		"nonsense":        {"", c.Origin("nonsense")},
	}
	want := map[string]row{
		"group":           {"flag", "flag --group"},
		"drain":           {"3s", "flag --drain"},
		"place":           {"env", "env KILLICK_PLACE"},
		"kafka.client_id": {"file", "k.yaml:5:14"},
		"http":            {"", "default"}, // an empty variable is not set
		"nonsense":        {"", ""},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(row{})); d != "" {
		t.Error(d)
	}
	if got := (Config{Group: "x"}).Origin("group"); got != "code" {
		t.Errorf("origin of a field set in code: %q", got)
	}
}

func TestLoadConfigFlagBeforeVariable(t *testing.T) {
	write(t, "a.yaml", "group: a\n")
	c, err := Load([]string{"--config", "a.yaml"}, []string{"KILLICK_CONFIG=missing.yaml"})
	if err != nil || c.Group != "a" {
		t.Errorf("group %q, error %v", c.Group, err)
	}
}

// TestLoadEveryKeyEveryWay sets each key of the table by flag, by variable and
// in the file, by its own and its Java name, and expects the same Config.
func TestLoadEveryKeyEveryWay(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	tlsFiles(t, dir)
	if err := os.WriteFile("pw", []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	samples := map[string]string{
		"group": "g", "place": "p-0", "prefix": "pre", "drain": "5s", "http": "off", "commit_interval": "2s",
		"log.level": "debug", "log.format": "json", "log.progress": "false", "topics.create": "false", "topics.replication": "3",
		"kafka.bootstrap_servers": "a:1,b:2", "kafka.client_id": "me", "kafka.rack": "r1",
		"kafka.session_timeout": "12s", "kafka.heartbeat_interval": "200ms", "kafka.rebalance_timeout": "2m",
		"kafka.metadata_max_age": "3s", "kafka.fetch_max_wait": "70ms", "kafka.fetch_max_bytes": "2MiB",
		"kafka.fetch_max_partition_bytes": "64KiB", "kafka.fetch_min_bytes": "2B", "kafka.linger": "0s",
		"kafka.batch_max_bytes": "4KiB", "kafka.compression": "zstd", "kafka.delivery_timeout": "9s",
		"kafka.buffer_bytes": "2GiB", "kafka.security_protocol": "sasl_ssl", "kafka.tls.ca_file": "ca.pem",
		"kafka.tls.cert_file": "client.pem", "kafka.tls.key_file": "client-key.pem", "kafka.tls.server_name": "k",
		"kafka.tls.insecure_skip_verify": "true", "kafka.sasl.mechanism": "SCRAM-SHA-256", "kafka.sasl.user": "bob",
		"kafka.sasl.password": "hunter2", "kafka.sasl.password_file": "pw", "kafka.sasl.allow_plaintext": "true",
	}
	// What a key needs beside it to be valid.
	base := []string{"KILLICK_KAFKA__SECURITY_PROTOCOL=sasl_ssl", "KILLICK_KAFKA__SASL__MECHANISM=PLAIN", "KILLICK_KAFKA__SASL__USER=u",
		"KILLICK_KAFKA__SASL__PASSWORD=p", "KILLICK_KAFKA__TLS__CERT_FILE=client.pem", "KILLICK_KAFKA__TLS__KEY_FILE=client-key.pem"}
	java := map[string]string{ // where the Java form of the sample differs
		"kafka.session_timeout": "12000", "kafka.heartbeat_interval": "200", "kafka.rebalance_timeout": "120000",
		"kafka.metadata_max_age": "3000", "kafka.fetch_max_wait": "70", "kafka.linger": "0", "kafka.delivery_timeout": "9000",
	}
	seen := 0
	for k := range configKeys() {
		sample, ok := samples[k.name]
		if !ok {
			t.Errorf("no sample for %s", k.name)
			continue
		}
		seen++
		without := base
		if k.name == "kafka.sasl.password_file" {
			without = []string{base[0], base[1], base[2], base[4], base[5]}
		}
		want, err := Load(nil, append(without[:len(without):len(without)], k.env()+"="+sample))
		if err != nil {
			t.Errorf("%s by variable: %v", k.name, err)
			continue
		}
		if got := k.text(&want); !k.isSecret() && got != sample {
			t.Errorf("%s: %q came back as %q", k.name, sample, got)
		}
		if !k.isSecret() {
			var args = []string{"--" + k.name + "=" + sample}
			got, err := Load(args, without)
			if err != nil || got.String() != want.String() {
				t.Errorf("%s by flag: %v", k.name, err)
			}
		}
		// Below the base: drop the variable that would win over the file.
		var rest []string
		for _, e := range without {
			if !strings.HasPrefix(e, k.env()+"=") {
				rest = append(rest, e)
			}
		}
		names := map[string]string{k.name: sample}
		if k.java != "" {
			names["kafka."+k.java] = sample
			if j := java[k.name]; j != "" {
				names["kafka."+k.java] = j
			}
		}
		for name, value := range names {
			file := name + ": " + value + "\n"
			if section, rest, ok := strings.Cut(name, "."); ok {
				file = section + ":\n  " + rest + ": " + value + "\n"
			}
			if err := os.WriteFile("k.yaml", []byte(file), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := Load([]string{"--config=k.yaml"}, rest)
			if err != nil || got.String() != want.String() {
				t.Errorf("%s in the file as %q: %v", k.name, file, err)
			}
			if p := got.Origin(k.name); err == nil && !strings.HasPrefix(p, "k.yaml:") {
				t.Errorf("%s in the file: origin %q", k.name, p)
			}
		}
	}
	if seen != len(samples) {
		t.Errorf("%d samples, %d keys", len(samples), seen)
	}
}

func TestLoadMistakesInFlagsAndVariables(t *testing.T) {
	tests := []struct {
		name      string
		args, env []string
		want      []string
	}{
		{"all at once, in order of precedence",
			[]string{"--drain=30", "--grup=x", "--topics.replication", "many"},
			[]string{"KILLICK_DRAIN=soon", "KILLICK_KAFKA__BOOTSTRAP_SERVER=a:1"},
			[]string{
				`flag --grup: unknown flag: did you mean --group?`,
				`env KILLICK_KAFKA__BOOTSTRAP_SERVER: unknown variable: did you mean KILLICK_KAFKA__BOOTSTRAP_SERVERS?`,
				`env KILLICK_DRAIN: "soon" is not a duration such as 500ms, 10s or 1m30s`,
				`flag --drain: "30" has no unit; write 30s or 30ms`,
				`flag --topics.replication: "many" is not a whole number`,
			}},
		{"a missing value", []string{"--drain"}, nil, []string{`flag --drain: needs a value`}},
		{"an empty value", []string{"--group="}, nil, []string{`flag --group: is empty; leave it out for the default (killick.<topology>)`}},
		{"an empty file name", []string{"--config", ""}, nil, []string{`flag --config: is empty; leave it out for no file`}},
		{"plain words", []string{"run", "--drain=1s", "now"}, nil,
			[]string{`argument "run": unexpected; a setting is --name=value`, `argument "now": unexpected; a setting is --name=value`}},
		{"bad syntax", []string{"---drain=1s", "--=x"}, nil,
			[]string{`argument "---drain=1s": not a flag; a setting is --name=value`, `argument "--=x": not a flag; a setting is --name=value`}},
		{"the value of an unknown flag is not a mistake of its own", []string{"--colour", "red", "--group=g"}, nil,
			[]string{`flag --colour: unknown flag: --help lists all settings`}},
		{"a password as a flag, without the password", []string{"--kafka.sasl.password", "hunter2"}, nil,
			[]string{`flag --kafka.sasl.password: refused: arguments are visible to other users; use KILLICK_KAFKA__SASL__PASSWORD, KILLICK_KAFKA__SASL__PASSWORD_FILE or the file`}},
		{"Java names", []string{"--kafka.session.timeout.ms=5"}, []string{"KILLICK_KAFKA__LINGER_MS=5", "KILLICK_KAFKA__ENABLE_AUTO_COMMIT=true"},
			[]string{
				`flag --kafka.session.timeout.ms: unknown flag: a Java name is accepted in the file only; here it is --kafka.session_timeout`,
				`env KILLICK_KAFKA__ENABLE_AUTO_COMMIT: unknown variable: refused: offsets are committed by killick alone, when trees have ended; see commit_interval`,
				`env KILLICK_KAFKA__LINGER_MS: unknown variable: a Java name is accepted in the file only; here it is KILLICK_KAFKA__LINGER`,
			}},
		{"the wrong level", []string{"--session_timeout=5s", "--kafka.drain=5s", "--sasl.user=x"}, []string{"KILLICK_BOOTSTRAP_SERVERS=a:1"},
			[]string{
				`flag --session_timeout: unknown flag: did you mean --kafka.session_timeout?`,
				`flag --kafka.drain: unknown flag: did you mean --drain?`,
				`flag --sasl.user: unknown flag: did you mean --kafka.sasl.user?`,
				`env KILLICK_BOOTSTRAP_SERVERS: unknown variable: did you mean KILLICK_KAFKA__BOOTSTRAP_SERVERS?`,
			}},
		{"no file", []string{"--config=nowhere.yaml"}, nil, []string{`flag --config: open nowhere.yaml: no such file or directory`}},
		{"no file, by variable", nil, []string{"KILLICK_CONFIG=nowhere.yaml"}, []string{`env KILLICK_CONFIG: open nowhere.yaml: no such file or directory`}},
		{"ranges", []string{"--drain=-1s", "--kafka.fetch_max_bytes=1GiB", "--topics.replication=0", "--kafka.linger=2h"}, nil,
			[]string{
				`flag --drain: "-1s" is negative; at least 1ms`,
				`flag --topics.replication: "0" is too small; at least 1`,
				`flag --kafka.fetch_max_bytes: "1GiB" is too large; at most 100MiB`,
				`flag --kafka.linger: "2h" is too large; at most 1m`,
			}},
		{"zero is not a way to say default", []string{"--drain=0s"}, nil, []string{`flag --drain: "0s" is too small; at least 1ms`}},
		{"enumerations and booleans", []string{"--log.level=loud", "--topics.create=yes"}, []string{"KILLICK_KAFKA__SECURITY_PROTOCOL=tls"},
			[]string{
				`env KILLICK_KAFKA__SECURITY_PROTOCOL: "tls" is not one of plaintext, ssl, sasl_plaintext, sasl_ssl`,
				`flag --log.level: "loud" is not one of trace, debug, info, warn, error, off`,
				`flag --topics.create: "yes" is neither true nor false`,
			}},
		{"lists", []string{"--bootstrap=a:1,,b:2"}, nil, []string{`flag --bootstrap: has an empty element`}},
		{"overflow", []string{"--kafka.buffer_bytes=9223372036854775807GiB", "--drain=9999999999h"}, nil,
			[]string{
				`flag --drain: "9999999999h" is not a duration such as 500ms, 10s or 1m30s`,
				`flag --kafka.buffer_bytes: "9223372036854775807GiB" is not a size such as 65536, 64KiB or 8MiB`,
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Load(tt.args, tt.env)
			if d := cmp.Diff(tt.want, lines(t, err)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestLoadLeavesForeignVariablesAlone(t *testing.T) {
	c, err := Load(nil, []string{
		"KILLICK_SERVICE_HOST=10.0.0.1", "KILLICK_SERVICE_PORT=80", "KILLICK_SERVICE_PORT_HTTP=80", "KILLICK_PORT=tcp://10.0.0.1:80",
		"KILLICK_PORT_80_TCP=tcp://10.0.0.1:80", "KILLICK_PORT_80_TCP_ADDR=10.0.0.1", "KILLICK_UI_SERVICE_HOST=10.0.0.2",
		"KILLICK_UI_PORT_80_TCP_PROTO=tcp", "KILLICK_TEST_KAFKA=1", "PATH=/bin", "not a variable",
	})
	if err != nil || c.Origin("group") != "default" {
		t.Error(err)
	}
}

func TestLoadHelp(t *testing.T) {
	for _, arg := range []string{"-h", "--help"} {
		if _, err := Load([]string{"--drain=nonsense", arg}, nil); !errors.Is(err, flag.ErrHelp) {
			t.Errorf("%s: %v", arg, err)
		}
	}
	help := helpText()
	for k := range configKeys() {
		for _, want := range []string{k.name, "(env " + k.env() + ")", "(default: " + k.defaultText() + ")", k.help} {
			if !strings.Contains(help, want) {
				t.Errorf("help of %s lacks %q", k.name, want)
			}
		}
	}
	if strings.Contains(help, "--kafka.sasl.password ") {
		t.Error("help offers a flag for the password")
	}
}

// TestLoadPasswordReplacesFile: the two ways to give the password are one
// setting when it comes to precedence.
func TestLoadPasswordReplacesFile(t *testing.T) {
	write(t, "k.yaml", "kafka:\n  security_protocol: SASL_SSL\n  sasl: {mechanism: plain, user: u, password_file: pw}\n")
	if err := os.WriteFile("pw", []byte("from-file\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args, env []string
		want      string
	}{
		{nil, nil, "from-file"},
		{nil, []string{"KILLICK_KAFKA__SASL__PASSWORD=from-env"}, "from-env"},
		{[]string{"--kafka.sasl.password_file=pw"}, []string{"KILLICK_KAFKA__SASL__PASSWORD=from-env"}, "from-file"},
	} {
		c, err := Load(append(tt.args, "--config=k.yaml"), tt.env)
		if err != nil {
			t.Errorf("%v %v: %v", tt.args, tt.env, err)
			continue
		}
		if got, err := c.SASL.password(); err != nil || got.Reveal() != tt.want {
			t.Errorf("%v %v: got %q, %v", tt.args, tt.env, got.Reveal(), err)
		}
	}
	_, err := Load([]string{"--config=k.yaml"}, []string{"KILLICK_KAFKA__SASL__PASSWORD=a", "KILLICK_KAFKA__SASL__PASSWORD_FILE=pw"})
	want := []string{"env KILLICK_KAFKA__SASL__PASSWORD_FILE: kafka.sasl.password is set as well; one of them"}
	if d := cmp.Diff(want, lines(t, err)); d != "" {
		t.Error(d)
	}
}

// TestPrintLoads: what String prints is a file that gives the same Config.
func TestPrintLoads(t *testing.T) {
	c := Config{Bootstrap: []string{"a:1", "[::1]:2"}, Group: `we"ird ${X} $${Y} ${{Z}} \ tab`, Drain: 90 * time.Minute, Linger: -1,
		LogLevel: "debug", ClientID: "1.10", FetchMaxBytes: 3 << 20, Topics: Topics{NoCreate: true, Replication: 2}}
	write(t, "k.yaml", c.String())
	got, err := Load([]string{"--config=k.yaml"}, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, c)
	}
	if got.String() != c.String() || got.Group != c.Group || got.Linger >= 0 {
		t.Errorf("got\n%s\nwant\n%s", got, c)
	}
	var b strings.Builder
	if err := got.print(&b, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"drain: 1h30m # k.yaml:4:8\n", "# place: none # default\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
