//go:build !unix

package bench

import (
	"context"
	"errors"
)

// startKafka cannot: the processes of kafkaenv are Unix ones.
func startKafka(context.Context) (address, what string, stop func() error, err error) {
	return "", "", nil, errors.New("bench: Kafka is started on Unix only; name one that runs with --kafka host:port")
}
