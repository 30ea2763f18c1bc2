// Package storm has killick's side of docs/from-storm.md: the topologies that are beside Storm's Java
// there, each a checked example.
//
//	go test -run Example -v ./examples/storm
//
// docs_test.go, at the root, compares the document with these files.
package storm
