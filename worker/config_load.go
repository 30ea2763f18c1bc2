package worker

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/killick-io/killick/internal/rules"
)

// Load reads the configuration: flags before environment before file before
// defaults. args are the arguments behind program and command name, environ is
// as os.Environ gives it. Every mistake is returned at once, each with its
// place, in an error that matches ErrConfig; Validate's are among them. It is
// flag.ErrHelp when help was asked for. A value that a higher place overrides is
// checked all the same.
//
// The file is named by --config or KILLICK_CONFIG. Variables are KILLICK_ and
// the key in capitals, with "." as "__"; an empty one counts as not set, a
// misspelt one is a mistake. Names that Kubernetes makes for a service called
// killick, and KILLICK_TEST_*, are left alone.
//
// Load reads files and environ, nothing else: no network, no os.Getenv.
func Load(args, environ []string) (Config, error) {
	var wrong mistakes
	env := envMap(environ)

	flags, path, err := readFlags(args, &wrong)
	if err != nil {
		return Config{}, err
	}
	vars := readEnv(env, &wrong)
	place := "flag --config"
	if path == "" {
		path, place = env[envPrefix+"CONFIG"], "env "+envPrefix+"CONFIG"
	}
	var file []setting
	if path != "" {
		var bad mistakes
		file, bad = loadFile(path, place, env)
		wrong = append(wrong, bad...)
	}

	c := Config{origins: make(map[string]string)}
	for _, layer := range [][]setting{file, vars, flags} {
		c.apply(layer, &wrong)
	}
	wrong = append(wrong, c.check()...)
	if err := wrong.err(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// apply sets one layer's values over those of lower layers.
func (c *Config) apply(layer []setting, wrong *mistakes) {
	// A password from here replaces a password file from below, and the other
	// way round: to the user they are one setting.
	for _, s := range layer {
		switch s.key.name {
		case "kafka.sasl.password":
			c.SASL.PasswordFile = ""
			delete(c.origins, "kafka.sasl.password_file")
		case "kafka.sasl.password_file":
			c.SASL.Password = Secret{}
			delete(c.origins, "kafka.sasl.password")
		}
	}
	for _, s := range layer {
		if text := s.key.set(c, s.values, s.millis, s.shown); text != "" {
			// The place of a file's value does not name the key; a flag and a
			// variable do.
			if s.inFile {
				text = s.key.name + ": " + text
			}
			wrong.add(s.place, "%s", text)
			continue
		}
		c.origins[s.key.name] = s.place
	}
}

// loadFile reads the file; place is who named it.
func loadFile(path, place string, env map[string]string) ([]setting, mistakes) {
	var wrong mistakes
	data, err := readBounded(path, maxFileBytes)
	if err != nil {
		wrong.add(place, "%v", err)
		return nil, wrong
	}
	return readFile(path, data, func(name string) (string, bool) {
		v, ok := env[name]
		return v, ok
	})
}

// readBounded reads a whole file of at most limit bytes. Its errors name the
// file.
func readBounded(path string, limit int64) (data []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	data, err = io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s is larger than %s", path, shortBytes(limit))
	}
	return data, nil
}

// envMap turns "name=value" texts into a map; of a repeated name the last
// counts, as for a started program.
func envMap(environ []string) map[string]string {
	env := make(map[string]string, len(environ))
	for _, e := range environ {
		if name, value, ok := strings.Cut(e, "="); ok {
			env[name] = value
		}
	}
	return env
}

// foreignEnv matches what Kubernetes sets in each pod for a service whose name
// begins with "killick", and the names that test suites use.
var foreignEnv = regexp.MustCompile(`^KILLICK_(TEST_.*|(.*_)?SERVICE_HOST|(.*_)?SERVICE_PORT(_.*)?|(.*_)?PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// readEnv finds the settings among the variables, in the order of the table,
// and the misspelt ones.
func readEnv(env map[string]string, wrong *mistakes) []setting {
	var found []setting
	known := map[string]bool{envPrefix + "CONFIG": true}
	for k := range configKeys() {
		known[k.env()] = true
		if v := env[k.env()]; v != "" {
			shown := v
			if k.isSecret() {
				shown = redacted
			}
			found = append(found, setting{key: k, values: []string{v}, shown: shown, place: "env " + k.env()})
		}
	}
	for name := range sortedKeys(env) {
		if !strings.HasPrefix(name, envPrefix) || known[name] || name == rules.Variable || foreignEnv.MatchString(name) {
			continue
		}
		wrong.add("env "+name, "unknown variable: %s", unknownEnv(name))
	}
	return found
}

// unknownEnv explains a variable that is none.
func unknownEnv(name string) string {
	form := func(k *key) string { return k.env() }
	path := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, envPrefix), "__", "."))
	// Java names have dots where a variable has underscores:
	// KAFKA__ENABLE_AUTO_COMMIT, KAFKA__ENABLE__AUTO__COMMIT.
	flat := func(s string) string { return strings.NewReplacer(".", "_", "__", "_").Replace(s) }
	for _, r := range javaRules() {
		if flat("kafka."+r.name) == flat(path) {
			return unknown("kafka."+r.name, form)
		}
	}
	for k := range configKeys() {
		if flat(k.name) == flat(path) {
			return "did you mean " + k.env() + "?"
		}
		if k.java != "" && flat("kafka."+k.java) == flat(path) {
			return unknown("kafka."+k.java, form)
		}
	}
	return unknown(path, form)
}

// flagValue collects what one flag was given; it never fails, so that the flag
// package goes on and all mistakes are found.
type flagValue struct {
	key   *key
	place string
	out   *map[string]setting
}

// Set keeps the last value, as the flag package does.
func (v flagValue) Set(s string) error {
	shown := s
	if v.key.isSecret() {
		shown = redacted
	}
	(*v.out)[v.key.name] = setting{key: v.key, values: []string{s}, shown: shown, place: v.place}
	return nil
}

// String is what flag wants; helpText prints defaults.
func (v flagValue) String() string { return "" }

// IsBoolFlag lets --topics.create stand alone.
func (v flagValue) IsBoolFlag() bool { return v.key != nil && v.key.isBool() }

// readFlags finds the settings among args and the path of --config. The error
// is flag.ErrHelp only.
func readFlags(args []string, wrong *mistakes) (found []setting, path string, err error) {
	set := flag.NewFlagSet("killick", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.Usage = func() {}
	values := make(map[string]setting)
	set.StringVar(&path, "config", "", "")
	for k := range configKeys() {
		set.Var(flagValue{k, "flag --" + k.name, &values}, k.name, "")
		if k.short != "" && k.short != k.name {
			set.Var(flagValue{k, "flag --" + k.short, &values}, k.short, "")
		}
	}
	if err := parseFlags(set, args, wrong); err != nil {
		return nil, "", err
	}
	set.Visit(func(f *flag.Flag) {
		if f.Name == "config" && path == "" {
			wrong.add("flag --config", "is empty; leave it out for no file")
		}
	})
	for k := range configKeys() {
		s, ok := values[k.name]
		switch {
		case !ok:
		case k.isSecret():
			// Refused although it was understood: ps shows it to everybody.
			wrong.add(s.place, "refused: arguments are visible to other users; use %s, %s_FILE or the file", k.env(), k.env())
		default:
			found = append(found, s)
		}
	}
	return found, path, nil
}

// parseFlags parses all of args, past mistakes. The error is flag.ErrHelp only.
func parseFlags(set *flag.FlagSet, args []string, wrong *mistakes) error {
	for len(args) > 0 {
		err := set.Parse(args)
		rest := set.Args()
		if errors.Is(err, flag.ErrHelp) {
			return flag.ErrHelp
		}
		if err == nil { // at the end, at a plain argument, or behind "--"
			if len(rest) == 0 {
				return nil
			}
			wrong.add("argument "+quote(rest[0]), "unexpected; a setting is --name=value")
			args = rest[1:]
			continue
		}
		// The flag package stops behind the argument that it could not use, but
		// in front of one whose form is bad.
		if strings.HasPrefix(err.Error(), "bad flag syntax") {
			wrong.add("argument "+quote(rest[0]), "not a flag; a setting is --name=value")
			args = rest[1:]
			continue
		}
		name, _, inline := strings.Cut(strings.TrimLeft(args[len(args)-len(rest)-1], "-"), "=")
		if set.Lookup(name) != nil {
			wrong.add("flag --"+name, "needs a value")
		} else {
			wrong.add("flag --"+name, "unknown flag: %s", unknown(name, func(k *key) string { return "--" + k.flag() }))
			// What follows is most likely its value.
			if !inline && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
				rest = rest[1:]
			}
		}
		args = rest
	}
	return nil
}

// sortedKeys yields the keys of a map in order, so that messages are stable.
func sortedKeys(m map[string]string) iter.Seq[string] {
	return slices.Values(slices.Sorted(maps.Keys(m)))
}
