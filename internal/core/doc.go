// Package core holds the bodies of the types that users of killick see but only
// the engine fills: tuples, emitters, held tuples. Package killick defines its
// types over these, so that their methods and documentation are where users look,
// and their fields are out of reach.
package core
