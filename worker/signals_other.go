//go:build !unix

package worker

import "os"

// others and other handle the signals that do not end the process: there are none here.
func (p *program) others(chan<- os.Signal) {}

func (p *program) other(*Worker, os.Signal) {}
