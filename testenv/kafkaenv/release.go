//go:build unix

package kafkaenv

import (
	"embed"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/killick-io/killick/testenv/internal/jvm"
)

// lines has a Maven project and a list of hashes for each release.
//
//go:embed lines/*/pom.xml lines/*/jars.sha256
var lines embed.FS

// release is the line of a version of Kafka.
func release(version string) (jvm.Line, error) {
	known := []string{Latest, First4, Oldest3}
	if !slices.Contains(known, version) {
		return jvm.Line{}, fmt.Errorf("no Kafka %q here, only %s", version, strings.Join(known, ", "))
	}
	pom, err := lines.ReadFile(path.Join("lines", version, "pom.xml"))
	if err != nil {
		return jvm.Line{}, err
	}
	lock, err := lines.ReadFile(path.Join("lines", version, "jars.sha256"))
	if err != nil {
		return jvm.Line{}, err
	}
	return jvm.Line{Name: "kafka-" + version, POM: pom, Lock: lock}, nil
}
