package faults

import (
	"reflect"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// topics knows the names of topic ids, as answers to Metadata and CreateTopics have told them.
type topics struct {
	mu    sync.Mutex
	names map[[16]byte]string // at most maxTopics
}

// maxTopics bounds what is remembered; beyond it all is forgotten, and learnt again.
const maxTopics = 100_000

func (t *topics) learn(id [16]byte, name string) {
	if id == ([16]byte{}) || name == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.names == nil || len(t.names) >= maxTopics {
		t.names = map[[16]byte]string{}
	}
	t.names[id] = name
}

// learnAll learns what an answer names.
func (t *topics) learnAll(resp kmsg.Response) {
	switch resp := resp.(type) {
	case *kmsg.MetadataResponse:
		for _, x := range resp.Topics {
			if x.Topic != nil {
				t.learn(x.TopicID, *x.Topic)
			}
		}
	case *kmsg.CreateTopicsResponse:
		for _, x := range resp.Topics {
			t.learn(x.TopicID, x.Topic)
		}
	}
}

// name returns "" for an id that is not known.
func (t *topics) name(id [16]byte) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.names[id]
}

// naming says what a field of a request has to do with topics. kmsg is generated from one description,
// in which these fields are always called so.
type naming int

const (
	namesNothing naming = iota
	namesTopic          // string or *string
	namesTopics         // []string
	namesID             // [16]byte
	namesBelow          // a struct, or structs, that may name some
)

func namingOf(f reflect.StructField) naming {
	t := f.Type
	switch f.Name {
	case "Topic", "TopicName":
		if t.Kind() == reflect.String || t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.String {
			return namesTopic
		}
	case "Topics", "TopicNames", "SubscribedTopicNames":
		if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String {
			return namesTopics
		}
	case "TopicID":
		if t == reflect.TypeFor[[16]byte]() {
			return namesID
		}
	}
	for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if f.IsExported() && t.Kind() == reflect.Struct && t != reflect.TypeFor[kmsg.Tags]() {
		return namesBelow
	}
	return namesNothing
}

// canName reports whether requests of the type can name topics.
func canName(t reflect.Type) bool {
	for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for i := range t.NumField() {
		switch f := t.Field(i); namingOf(f) {
		case namesTopic, namesTopics, namesID:
			return true
		case namesBelow:
			if canName(f.Type) {
				return true
			}
		}
	}
	return false
}

// named calls f with the name of each topic in the request until it returns true, and reports whether it
// did. Ids that are not known are passed over.
func (t *topics) named(v reflect.Value, f func(string) bool) bool {
	switch v.Kind() {
	case reflect.Pointer:
		return !v.IsNil() && t.named(v.Elem(), f)
	case reflect.Slice:
		for i := range v.Len() {
			if t.named(v.Index(i), f) {
				return true
			}
		}
		return false
	}
	for i := range v.NumField() {
		field := v.Field(i)
		switch namingOf(v.Type().Field(i)) {
		case namesTopic:
			if field.Kind() == reflect.Pointer {
				if field = field.Elem(); !field.IsValid() {
					continue
				}
			}
			if name := field.String(); name != "" && f(name) {
				return true
			}
		case namesTopics:
			for j := range field.Len() {
				if f(field.Index(j).String()) {
					return true
				}
			}
		case namesID:
			if name := t.name(field.Interface().([16]byte)); name != "" && f(name) {
				return true
			}
		case namesBelow:
			if t.named(field, f) {
				return true
			}
		}
	}
	return false
}
